"""Which files of a download are images, which are their labels, and of which split."""

import re

import numpy as np
import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.data.importing.layouts import find_layout
from small_data import noise, save

LAYOUTS = {
    "train/images + train/masks": (
        "{split}/images/{n}.jpg",
        "{split}/masks/{n}.png",
        "<split>/images/*.jpg + <split>/masks/*.png",
    ),
    "images + masks": (
        "images/{split}/{n}.jpg",
        "masks/{split}/{n}_mask.png",
        "images/<split>/*.jpg + masks/<split>/*_mask.png",
    ),
    "CamVid on Kaggle": (
        "{split}/0001TP_{n}.png",
        "{split}_labels/0001TP_{n}_L.png",
        "<split>/*.png + <split>_labels/*_L.png",
    ),
    "SegNet": ("{split}/{n}.png", "{split}annot/{n}.png", "<split>/*.png + <split>annot/*.png"),
    "Cityscapes": (
        "leftImg8bit/{split}/aachen/{n}_leftImg8bit.png",
        "gtFine/{split}/aachen/{n}_gtFine_labelIds.png",
        "leftImg8bit/<split>/aachen/*_leftImg8bit.png + gtFine/<split>/aachen/*_gtFine_labelIds.png",
    ),
    "side by side": ("{split}/{n}_sat.jpg", "{split}/{n}_mask.png", "<split>/*_sat.jpg + <split>/*_mask.png"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_found(tmp_path, name):
    image, label, pattern = LAYOUTS[name]
    for split in ("train", "val"):
        for number in range(3):  # the same numbers in both splits
            save(tmp_path / image.format(split=split, n=number), noise(8, 9))
            save(tmp_path / label.format(split=split, n=number), np.zeros((8, 9)))
    if name == "Cityscapes":  # its other files
        save(tmp_path / "gtFine/train/aachen/0_gtFine_color.png", noise(8, 9))
        save(tmp_path / "gtFine/train/aachen/0_gtFine_labelTrainIds.png", np.zeros((8, 9)))
    found = find_layout(tmp_path)
    assert found.pattern == pattern
    assert len(found.pairs) == 6
    for pair in found.pairs:
        number = re.search(r"\d(?=\D*$)", pair.image.relative.as_posix().replace("8bit", ""))[0]
        assert pair.label.path == tmp_path / label.format(split=pair.split, n=number)
        assert pair.image.path == tmp_path / image.format(split=pair.split, n=number)
    assert found.orphans == ()


def test_names_that_end_like_labels_are_no_labels_where_a_folder_says_so(tmp_path):
    save(tmp_path / "images/zebra_mask.png", noise(4, 4))
    save(tmp_path / "labels/zebra_mask.png", np.zeros((4, 4)))
    (pair,) = find_layout(tmp_path).pairs
    assert (pair.image.path.parent.name, pair.label.path.parent.name, pair.name) == ("images", "labels", "zebra_mask")


def test_folders_may_be_named(tmp_path):
    save(tmp_path / "stuff/a.png", noise(4, 4))
    save(tmp_path / "things/a.png", np.zeros((4, 4)))
    save(tmp_path / "rest/a.png", noise(4, 4))
    with pytest.raises(UserError, match="no label images found among 3 images; a label's folder is called masks"):
        find_layout(tmp_path)
    (pair,) = find_layout(tmp_path, images="stuff", labels="things").pairs
    assert pair.label.path == tmp_path / "things/a.png"
    with pytest.raises(UserError, match="--labels names a folder without images"):
        find_layout(tmp_path, labels="nothing")


def test_the_split_in_a_layout_is_a_whole_word(tmp_path):
    for split in ("training", "validation"):
        for number in range(3):
            save(tmp_path / f"{split}/images/{number}.png", noise(4, 4))
            save(tmp_path / f"{split}/masks/{number}.png", np.zeros((4, 4)))
    assert find_layout(tmp_path).pattern == "<split>/images/*.png + <split>/masks/*.png"


def test_an_image_and_a_label_of_different_folders_are_no_pair(tmp_path):
    """Each lacks its partner: of another split, or of another patient."""
    for place in ("train/images/1", "train/images/5", "train/masks/1", "val/images/1", "val/masks/1", "val/masks/5"):
        save(tmp_path / f"splits/{place}.png", noise(4, 4))
    for place in ("images/p1/1", "images/p1/2", "masks/p1/1", "masks/p2/2"):
        save(tmp_path / f"patients/{place}.png", noise(4, 4))
    for source, image, label in (
        ("splits", "train/images/5", "val/masks/5"),
        ("patients", "images/p1/2", "masks/p2/2"),
    ):
        found = find_layout(tmp_path / source)
        without = [pair.image.relative.with_suffix("").as_posix() for pair in found.pairs if pair.label is None]
        assert without == [image]
        assert [path.relative_to(tmp_path / source).with_suffix("").as_posix() for path in found.orphans] == [label]
