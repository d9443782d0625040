"""The class index agrees with the labels, and its cache is only read when it is complete and current."""

import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from losspool.segmentation.base.errors import BrokenFileError
from losspool.segmentation.data.crops import indexing as module
from losspool.segmentation.data.crops.indexing import POSITIONS, build_index, class_index
from losspool.segmentation.data.kinds.registry import open_dataset
from real_runs import Processes, outcome
from small_data import label_values, save, write_folder


@pytest.fixture
def root(tmp_path):
    return write_folder(tmp_path / "data")


def opened(root):
    return open_dataset("folder", root, "train")


def same(a, b):
    for name in ("pixels", "sizes", "starts", "positions"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_counts_sizes_and_positions_are_the_labels(root):
    save(root / "labels/train/003.png", np.zeros((40, 60)))  # one with a single class
    dataset = opened(root)
    index = build_index(dataset)
    for image in range(len(dataset)):
        label = dataset.label(image)
        assert tuple(index.sizes[image]) == label.shape
        for value in range(len(dataset.classes)):
            count = int((label == value).sum())
            positions = index.positions_of(image, value)
            assert index.pixels[image, value] == count
            assert len(positions) == min(count, POSITIONS) == len({tuple(position) for position in positions.tolist()})
            assert (label[positions[:, 0], positions[:, 1]] == value).all()
    assert index.images_with(1).tolist() == [0, 1, 2, 4, 5]


def test_positions_are_spread_over_the_whole_region(tmp_path):
    write_folder(tmp_path, count=40, size=(64, 64))
    for number in range(40):
        save(tmp_path / f"labels/train/{number:03}.png", np.zeros((64, 64)))
    index = build_index(opened(tmp_path))
    everywhere = index.positions / 63
    # Means of 2,560 draws: standard error 0.006.
    np.testing.assert_allclose(everywhere.mean(0), 0.5, atol=0.03)
    np.testing.assert_allclose(everywhere.std(0), 12**-0.5, atol=0.03)


def built_times(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "build_index", lambda dataset: calls.append(1) or build_index(dataset))
    return calls


def test_the_cache_is_used_and_holds_the_same(root, tmp_path, monkeypatch):
    calls = built_times(monkeypatch)
    first = class_index(opened(root), tmp_path / "cache")
    second = class_index(opened(root), tmp_path / "cache")
    assert len(calls) == 1
    same(first, second)
    assert second.pixels.dtype == np.int64


def touch_later(path):
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


CHANGES = {
    "a label's content": lambda root: save(root / "labels/train/002.png", label_values(40, 60, seed=9)),
    "a label's time": lambda root: touch_later(root / "labels/train/002.png"),
    "an image less": lambda root: (root / "images/train/002.png").unlink(),
    "an id": lambda root: (root / "classes.yaml").write_text(
        (root / "classes.yaml")
        .read_text()
        .replace("id: 2", "id: 3")
        .replace("id: 7", "id: 2")
        .replace("id: 3", "id: 7")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rebuilt_when_the_data_changes(root, tmp_path, monkeypatch, change):
    calls = built_times(monkeypatch)
    class_index(opened(root), tmp_path / "cache")
    CHANGES[change](root)
    after = class_index(opened(root), tmp_path / "cache")
    assert len(calls) == 2
    same(after, build_index(opened(root)))


def damage(path, kind):
    content = path.read_bytes()
    if kind == "half":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(os.getcwd))
    elif kind == "a bit":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif kind == "of other data":
        path.write_bytes(module._encoded(module._decoded(content, key_of(path)), "1-64-other"))
    elif kind == "other tables":
        save_file({"pixels": np.zeros((1, 1), np.int64)}, path, {"key": key_of(path), "checksum": ""})


def key_of(path):
    return "1-64-" + path.stem.rpartition("-")[2]


@pytest.mark.parametrize("kind", ["half", "empty", "pickle", "a bit", "of other data", "other tables"])
def test_a_damaged_cache_is_not_read(root, tmp_path, monkeypatch, capsys, kind):
    calls = built_times(monkeypatch)
    cache = tmp_path / "cache"
    truth = class_index(opened(root), cache)
    (path,) = cache.iterdir()
    damage(path, kind)
    same(class_index(opened(root), cache), truth)
    assert len(calls) == 2
    assert "the cached index is invalid and will be rebuilt" in " ".join(capsys.readouterr().err.split())
    class_index(opened(root), cache)  # and the new one is good again
    assert len(calls) == 2


def test_a_writer_that_dies_leaves_no_cache(root, tmp_path):
    """A second process is killed in the middle of the write."""
    code = """
import os, sys, pathlib
from losspool.segmentation.data.crops import indexing as index
from losspool.segmentation.data.kinds.registry import open_dataset
def torn(path, content):
    with open(path, "wb") as file:
        file.write(content[:100])
    os._exit(9)
pathlib.Path.write_bytes = torn
index.class_index(open_dataset("folder", sys.argv[1], "train"), pathlib.Path(sys.argv[2]))
"""
    cache = tmp_path / "cache"
    with Processes() as processes:
        assert outcome(processes.fork("plain_python", "-c", code, root, cache)) == (9, "")
    assert not list(cache.glob("*.safetensors"))
    same(class_index(opened(root), cache), build_index(opened(root)))


def test_what_killed_writers_left_is_deleted_unless_it_may_be_growing(root, tmp_path):
    cache = tmp_path / "cache"
    class_index(opened(root), cache)
    (path,) = cache.iterdir()
    path.unlink()
    ages = {
        f".{path.name}.{'0' * 8}.partial": 3700,
        f".{path.name}.{'1' * 8}.partial": 3500,
        ".another.2.partial": 9999,
    }
    for name, age in ages.items():
        (cache / name).write_bytes(b"half")
        os.utime(cache / name, (time.time() - age,) * 2)
    class_index(opened(root), cache)
    assert {found.name for found in cache.iterdir()} == {path.name, *list(ages)[1:]}


def test_a_full_disk_costs_the_cache_alone(root, tmp_path, monkeypatch, capsys):
    def full(path, content):
        with open(path, "wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        index = class_index(opened(root), tmp_path / "cache")
    same(index, build_index(opened(root)))
    reported = " ".join(capsys.readouterr().err.split())
    assert ".safetensors: cannot be written (No space left on device); the index will be built again" in reported
    assert not list((tmp_path / "cache").iterdir())


def test_a_cache_folder_that_cannot_be_is_no_obstacle(root, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    same(class_index(opened(root), tmp_path / "file" / "cache"), build_index(opened(root)))
    assert "the index will be built again" in " ".join(capsys.readouterr().err.split())


def test_a_bad_label_is_named(root, tmp_path):
    (root / "labels/train/004.png").write_text("rubbish")
    with pytest.raises(BrokenFileError, match=r"004\.png: not an image"):
        class_index(opened(root), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_cache_folder_follows_the_users_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_folder() == tmp_path / "losspool"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert module.cache_folder().name == "losspool"
