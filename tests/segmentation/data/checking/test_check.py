"""``losspool data check``: the table is the truth, and every fault is listed with its file."""

import re
import shutil

import numpy as np
import pytest

from small_data import label_values, noise, save, write_folder


def test_a_sound_dataset(tmp_path, command):
    root = write_folder(tmp_path, "train", count=3)
    write_folder(tmp_path, "val", count=2)
    save(root / "labels/train/001.png", np.zeros((40, 60)))
    code, output, _ = command("data", "check", "folder", root)
    assert code == 0
    assert f"{tmp_path.name}/train: images 3, faults 0" in output
    assert f"{tmp_path.name}/val: images 2, faults 0" in output
    labels = [label_values(40, 60, seed=0), np.zeros((40, 60)), label_values(40, 60, seed=2)]
    every = np.concatenate(labels)
    for value, name in ((0, "soil"), (2, "weed"), (7, "crop plant"), (255, "void")):
        pixels, images = re.search(rf"{name} +([\d.]+) +([\d.]+)", output).groups()
        assert float(pixels) == pytest.approx(100 * (every == value).mean(), abs=0.0051)
        assert float(images) == pytest.approx(100 * np.mean([(label == value).any() for label in labels]), abs=0.051)
    lengths = {name: re.search(rf"{name} .*?([█▏]*) *$", output, re.MULTILINE)[1] for name in ("soil", "weed")}
    assert len(lengths["soil"]) == 32
    assert len(lengths["weed"]) == max(round(32 * (every == 2).mean() / (every == 0).mean()), 1)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_numbers_are_whole_in_every_terminal(tmp_path, command, monkeypatch, columns):
    """Long names and narrow terminals cost the bar and the name, never a number."""
    root = write_folder(tmp_path, count=1)
    text = (root / "classes.yaml").read_text()
    (root / "classes.yaml").write_text(text.replace("crop plant", "x" * 90))
    code, output, _ = command("data", "check", "folder", root, columns=columns)
    assert code == 0
    label = label_values(40, 60)
    for value in (0, 2, 7, 255):
        assert f"{100 * (label == value).mean():.2f}" in output
    assert max(map(len, output.splitlines()[1:6])) <= columns


def test_missing_labels_are_a_fault_unless_it_is_a_test_split(tmp_path, command):
    root = write_folder(tmp_path, "train", count=2)
    shutil.rmtree(root / "labels")
    code, output, _ = command("data", "check", "folder", root)
    assert code == 1
    assert output.count("this image has no label") == 2


def test_one_bad_split_does_not_hide_the_others(tmp_path, command):
    root = write_folder(tmp_path, "train", count=2)
    (root / "images" / "empty").mkdir()
    (root / "README.txt").write_text("notes\n")
    code, output, _ = command("data", "check", "folder", root)
    assert code == 1
    assert "fault: " in output
    assert "/train: images 2, faults 0" in output
    assert "README" not in output


def test_one_split_alone(tmp_path, command):
    write_folder(tmp_path, "train", count=1)
    write_folder(tmp_path, "val", count=2)
    code, output, _ = command("data", "check", "folder", tmp_path, "--split", "val")
    assert code == 0
    assert "/train" not in output


def test_every_fault_is_listed_by_file(tmp_path, command):
    root = write_folder(tmp_path, count=7)
    images, labels = root / "images/train", root / "labels/train"
    (images / "000.png").write_bytes((images / "000.png").read_bytes()[:300])
    (labels / "001.png").unlink()
    save(labels / "002.png", label_values(41, 60))
    save(labels / "003.png", np.full((40, 60), 77))
    (images / "004.png").unlink()
    save(labels / "005 \x1b[31m\nred.png", label_values(40, 60))
    save(images / "005 \x1b[31m\nred.png", noise(40, 61))
    code, output, _ = command("data", "check", "folder", root)
    assert code == 1
    faults = re.findall(r"^fault: (.*)$", output, re.MULTILINE)
    expected = {
        "images/train/000.png: the image cannot be decoded",
        "images/train/001.png: this image has no label",
        "images/train/002.png: the image is 60×40, its label 60×41",
        "labels/train/003.png: the label value 77 is neither a class id nor void",
        "labels/train/004.png: this label has no image",
        r"005 \x1b[31m\nred.png: the image is 61×40, its label 60×40",
    }
    assert len(faults) == len(expected)
    for words in expected:
        assert sum(words in fault for fault in faults) == 1, words
    assert "\x1b" not in output
    assert "images 7, faults 6" in output


def test_a_split_without_labels_is_no_fault(tmp_path, command):
    root = write_folder(tmp_path, "train", count=2)
    save(root / "images/test/a.png", noise(4, 4))
    code, output, _ = command("data", "check", "folder", root)
    assert code == 0
    assert "/test: images 1, faults 0, no labels" in output


def test_streets_needs_no_root(command, monkeypatch):
    monkeypatch.setattr(
        "losspool.segmentation.data.kinds.streets.dataset.SCENE_COUNTS", {"train": 3, "val": 1, "test": 1}
    )
    code, output, _ = command("data", "check", "streets", "--split", "train")
    assert code == 0
    assert "streets/train: images 3, faults 0" in output
    assert "pedestrian" in output


MISTAKES = {
    ("data", "check", "folder", "nowhere"): "error: nowhere: the root of the data does not exist",
    ("data", "check", "./nowhere"): "error: nowhere: the root of the data does not exist",
    ("data", "check", "no/where"): "error: no/where: the root of the data does not exist",
    ("data", "check", "foldr", "."): "error: unknown dataset 'foldr'; did you mean 'folder'?",
    ("data", "check", "camvid", "."): "error: .: no split of camvid found",
    ("data", "check", ".", "data.crop=3"): "error: only data.exif and data.intensity can be set here, got 'data.crop'",
    ("data", "check", ".", "exif=ignore"): "error: only data.exif and data.intensity can be set here, got 'exif'",
    ("data", "check", "folder", ".", "data.exif=turn"): "error: data.exif must be one of apply, ignore, got 'turn'",
    ("data", "check", "camvid"): "error: the dataset 'camvid' needs a root folder",
    ("data", "check", "voc", "."): "error: .: neither this folder nor VOCdevkit/VOC2012 below it holds JPEGImages",
    ("data", "prepare", "voc", ".", "--sbd", "."): "error: .: neither this folder nor VOCdevkit/VOC2012",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path, command, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, output, error = command(*arguments)
    assert code == 2
    assert error.startswith(MISTAKES[arguments])
    assert error.count("\n") == 1
    assert output == ""
