"""The real frames read right."""

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base.errors import BrokenFileError
from losspool.segmentation.data.crops.indexing import build_index
from losspool.segmentation.data.kinds.cityscapes import CLASSES, LABEL_IDS
from losspool.segmentation.data.kinds.registry import open_dataset, splits_of
from losspool.segmentation.data.kinds.voc import voc_color
from shared_data import shared_data
from small_data import noise, save

# The shares of train pixels in %, as the data's own README states them; void 3.95.
CAMVID_SHARES = {
    "sky": 16.85,
    "building": 23.26,
    "pole": 0.98,
    "road": 31.66,
    "pavement": 4.49,
    "tree": 9.72,
    "sign": 1.17,
    "fence": 1.13,
    "car": 5.87,
    "pedestrian": 0.64,
    "bicyclist": 0.29,
}


def test_camvid_shares():
    dataset = open_dataset("camvid", shared_data("camvid"), "train")
    index = build_index(dataset)
    total = index.sizes.prod(1).sum()
    shares = dict(zip((info.name for info in dataset.classes), 100 * index.pixels.sum(0) / total, strict=True))
    assert shares == pytest.approx(CAMVID_SHARES, abs=0.0051)  # they are stated with two digits
    assert 100 * (1 - index.pixels.sum() / total) == pytest.approx(3.95, abs=0.0051)


def test_camvid_splits():
    root = shared_data("camvid")
    assert splits_of("camvid", root) == ["train", "val", "test"]
    assert [len(open_dataset("camvid", root, split)) for split in ("train", "val", "test")] == [367, 101, 233]
    assert open_dataset("camvid", root, "val").image(0).size == (480, 360)


def test_cityscapes_label_ids_map_to_the_frames_own_train_ids(tmp_path):
    real = shared_data("cityscapes-one-frame")
    with_train_ids = open_dataset("cityscapes", real, "val")
    root = tmp_path / "cityscapes"
    root.mkdir()
    (root / "leftImg8bit").symlink_to(real / "leftImg8bit")
    source = next((real / "gtFine").rglob("*_labelIds.png"))
    target = root / source.relative_to(real)
    target.parent.mkdir(parents=True)
    target.symlink_to(source)
    mapped = open_dataset("cityscapes", root, "val")
    assert mapped.pairs[0].label.name.endswith("labelIds.png")
    assert with_train_ids.pairs[0].label.name.endswith("labelTrainIds.png")
    ours, theirs = mapped.label(0), with_train_ids.label(0)
    # This frame's two files were drawn apart: on 77 pixels (0.24 %) their outlines differ, and no
    # mapping of values can make them equal. Each lies within two pixels of the other label.
    differs = ours != theirs
    assert differs.sum() <= 77
    padded = np.pad(ours, 2, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, (5, 5)).reshape(*ours.shape, 25)
    assert (around[differs] == theirs[differs][:, None]).any(1).all()
    for value in np.unique(ours):
        assert np.bincount(theirs[ours == value]).argmax() == value
    assert mapped.names == ["frankfurt/frankfurt_000000_000294"]
    assert mapped.image(0).size == mapped.label(0).shape[::-1]
    assert 5 < len(set(mapped.label(0).ravel().tolist()) - {255}) <= len(CLASSES) == len(LABEL_IDS) == 19


def test_the_table_of_classes_is_the_official_one():
    labels = pytest.importorskip("cityscapesscripts.helpers.labels").labels
    scored = sorted((label for label in labels if 0 <= label.trainId < 255), key=lambda label: label.trainId)
    assert [(label.name, label.color) for label in scored] == [(info.name, info.color) for info in CLASSES]
    assert [label.id for label in scored] == list(LABEL_IDS)


def test_every_official_label_id_is_read(tmp_path):
    labels = pytest.importorskip("cityscapesscripts.helpers.labels").labels
    save(tmp_path / "leftImg8bit/train/x/x_1_leftImg8bit.png", noise(1, len(labels)))
    path = save(tmp_path / "gtFine/train/x/x_1_gtFine_labelIds.png", [[label.id % 256 for label in labels]])
    save(tmp_path / "gtFine/train/x/x_2_gtFine_labelIds.png", [[0]])
    dataset = open_dataset("cityscapes", tmp_path, "train")
    expected = [label.trainId if 0 <= label.trainId < 255 else 255 for label in labels]
    assert dataset.label(0).tolist() == [expected]
    assert [orphan.name for orphan in dataset.orphans] == ["x_2_gtFine_labelIds.png"]
    save(path, [[34] * len(labels)])
    with pytest.raises(BrokenFileError, match="the label value 34 is neither a class id"):
        dataset.label(0)


def test_voc_palette_values_are_exact():
    root = shared_data("voc-three-frames")
    assert splits_of("voc", root) == ["trainval"]
    dataset = open_dataset("voc", root, "trainval")
    assert len(dataset) == 3
    for index, pair in enumerate(dataset.pairs):
        label = dataset.label(index)
        with Image.open(pair.label) as image:
            assert image.mode == "P"
            np.testing.assert_array_equal(label, np.asarray(image))
            colors = np.asarray(image.convert("RGB"))
        for value in np.unique(label).tolist():  # VOC's colours, as the file's own palette gives them
            assert {tuple(color) for color in colors[label == value].tolist()} == {voc_color(value)}
            assert value == 255 or dataset.classes[value].color == voc_color(value)
        assert dataset.image(index).size == label.shape[::-1]
