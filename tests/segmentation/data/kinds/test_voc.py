"""VOC's lists and folders, and the augmented set built from SBD, checked against sets made by hand."""

import re

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from losspool.segmentation.base.errors import BrokenFileError, UserError
from losspool.segmentation.data.kinds.registry import open_dataset, splits_of
from losspool.segmentation.data.kinds.voc import CLASSES, VOC_AUGMENTED_IMAGES, prepare_voc, voc_color
from small_data import noise, save

VOC_TRAIN, VOC_VAL = ["2007_1", "2007_2"], ["2007_3"]
SBD_TRAIN, SBD_VAL = ["2007_1", "2008_5", "2007_3"], ["2008_6"]


def label_of(name, kind):
    random = np.random.default_rng([ord(letter) for letter in name + kind])
    return random.choice([0, 3, 20, 255], (9, 12)).astype(np.uint8)


@pytest.fixture
def downloads(tmp_path):
    """VOC and SBD in miniature, with the overlaps of the real ones."""
    voc, sbd = tmp_path / "VOCdevkit" / "VOC2012", tmp_path / "benchmark_RELEASE" / "dataset"
    lists = voc / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(VOC_TRAIN) + "\n")
    (lists / "val.txt").write_text("\n".join(VOC_VAL) + "\n")
    for name in {*VOC_TRAIN, *VOC_VAL, *SBD_TRAIN, *SBD_VAL}:
        save(voc / "JPEGImages" / f"{name}.jpg", noise(9, 12))
    for name in VOC_TRAIN + VOC_VAL:
        image = Image.fromarray(label_of(name, "voc"))
        image.putpalette([channel for index in range(256) for channel in voc_color(index)])
        (voc / "SegmentationClass").mkdir(exist_ok=True)
        image.save(voc / "SegmentationClass" / f"{name}.png")
    (sbd / "cls").mkdir(parents=True)
    for split, names in (("train", SBD_TRAIN), ("val", SBD_VAL)):
        (sbd / f"{split}.txt").write_text("\n".join(names) + "\n")
        for name in names:
            content = {"Segmentation": label_of(name, "sbd"), "Boundaries": [], "CategoriesPresent": [1]}
            savemat(sbd / "cls" / f"{name}.mat", {"GTcls": content}, do_compression=True)
    return tmp_path


def test_the_augmented_set(downloads):
    done = prepare_voc(downloads, downloads)
    dataset = open_dataset("voc", downloads, "trainaug")
    assert dataset.names == ["2007_1", "2007_2", "2008_5", "2008_6"]  # all of SBD and VOC's train, without VOC's val
    assert (done.images, done.from_sbd) == (4, 2)
    assert VOC_AUGMENTED_IMAGES == 10_582
    for index, name in enumerate(dataset.names):
        truth = label_of(name, "voc" if name in VOC_TRAIN else "sbd")
        np.testing.assert_array_equal(dataset.label(index), truth)
        with Image.open(done.folder / f"{name}.png") as image:
            assert image.mode == "P"
            np.testing.assert_array_equal(np.asarray(image), truth)
            assert image.getpalette()[:9] == [0, 0, 0, 128, 0, 0, 0, 128, 0]
            assert image.getpalette()[-3:] == [224, 224, 192]


def test_val_is_vocs_own(downloads):
    prepare_voc(downloads, downloads)
    assert splits_of("voc", downloads) == ["train", "trainaug", "val"]
    dataset = open_dataset("voc", downloads / "VOCdevkit" / "VOC2012", "val")
    assert dataset.names == VOC_VAL
    np.testing.assert_array_equal(dataset.label(0), label_of("2007_3", "voc"))


def test_vocs_own_label_wins(downloads):
    save(downloads / "VOCdevkit/VOC2012/SegmentationClassAug/2007_3.png", np.zeros((9, 12)))
    dataset = open_dataset("voc", downloads, "val")
    np.testing.assert_array_equal(dataset.label(0), label_of("2007_3", "voc"))


def test_classes_and_colours_are_vocs():
    """As the development kit lists them; a few by heart."""
    table = {0: ("background", (0, 0, 0)), 1: ("aeroplane", (128, 0, 0)), 8: ("cat", (64, 0, 0))}
    table |= {11: ("diningtable", (192, 128, 0)), 12: ("dog", (64, 0, 128)), 15: ("person", (192, 128, 128))}
    table |= {20: ("tvmonitor", (0, 64, 128))}
    assert {index: (CLASSES[index].name, CLASSES[index].color) for index in table} == table
    assert len(CLASSES) == 21


def test_an_interrupted_second_preparation_leaves_no_list(downloads):
    prepare_voc(downloads, downloads)
    sbd_file(downloads).unlink()
    with pytest.raises(BrokenFileError):
        prepare_voc(downloads, downloads)
    assert "trainaug" not in splits_of("voc", downloads)


def test_before_it_is_prepared(downloads):
    with pytest.raises(UserError, match="create it with 'losspool data prepare voc'"):
        open_dataset("voc", downloads, "trainaug")


def sbd_file(downloads):
    return downloads / "benchmark_RELEASE" / "dataset" / "cls" / "2008_5.mat"


DAMAGES = {
    "the file does not exist": lambda path: path.unlink(),
    "not an SBD label file": lambda path: path.write_bytes(path.read_bytes()[:150]),
    "not an SBD label file (": lambda path: savemat(path, {"other": 1}),
    "its size differs from the image's": lambda path: savemat(
        path, {"GTcls": {"Segmentation": np.zeros((3, 3), np.uint8)}}
    ),
    "GTcls.Segmentation is not a VOC label image": lambda path: savemat(
        path, {"GTcls": {"Segmentation": np.full((9, 12), 21, np.uint8)}}
    ),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_damage_is_named_and_leaves_no_list(downloads, problem):
    path = sbd_file(downloads)
    DAMAGES[problem](path)
    with pytest.raises(BrokenFileError, match=re.escape(f"{path}: {problem}")):
        prepare_voc(downloads, downloads)
    assert "trainaug" not in splits_of("voc", downloads)


def test_without_sbd(downloads, tmp_path):
    with pytest.raises(UserError, match="holds SBD's folder 'cls'"):
        prepare_voc(downloads, tmp_path / "VOCdevkit")
