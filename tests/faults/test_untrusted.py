"""Files from elsewhere: what they carry is not run, what they ask for is not written outside, and they show as text."""

import os
import pickle
import zlib

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from faults.bad_files import png
from losspool.segmentation.runs.checkpoints import checkpoint_path
from runs_for_tests import train, write_recipe
from small_data import write_folder
from trained_runs import assert_mistake

ODD = "a\nb\x1b[31mc<b id=odd>&"
UP = f"{ODD}/../../up"
"""Where a slash can be: in the name of a class, but not of a file."""


class Payload:
    """Unpickled by a careless reader, it makes a file."""

    def __init__(self, mark):
        self._mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self._mark,)


@pytest.fixture
def mark(tmp_path):
    """Must never come about."""
    path = tmp_path / "it-ran"
    pickle.loads(pickle.dumps(Payload(path)))
    assert path.is_dir()  # the payload is a real one
    path.rmdir()
    yield path
    assert not path.exists(), "code of the file was run"


def write_pickle(kind, path, mark):
    if kind == "torch":
        torch.save({"format": 1, "content": {"model": Payload(mark)}}, path)
    elif kind == "old torch":
        torch.save(Payload(mark), path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(Payload(mark)))


@pytest.mark.parametrize("kind", ["torch", "old torch", "pickle"])
@pytest.mark.parametrize("verb", [("evaluate",), ("predict", "--split", "val", "--out", "predicted")])
def test_a_checkpoint_with_code(kind, verb, tmp_path, mark, command):
    train(write_recipe(tmp_path, steps=2), tmp_path / "run")
    write_pickle(kind, checkpoint_path(tmp_path / "run" / "checkpoints", 2), mark)
    result = command(verb[0], tmp_path / "run", *verb[1:], "--model", "tiny_model.build")
    assert_mistake(result, "step-0000002.pt: the checkpoint is damaged, or asks to run code")


@pytest.mark.parametrize("kind", ["torch", "old torch", "pickle"])
def test_a_resumed_run_passes_over_it(kind, tmp_path, mark, capsys):
    recipe = write_recipe(tmp_path, steps=4, checkpoint_every=2)
    train(recipe, tmp_path / "run")
    write_pickle(kind, checkpoint_path(tmp_path / "run" / "checkpoints", 4), mark)
    train(recipe, tmp_path / "run", resume=True)
    assert "skipped: " in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["torch", "old torch", "pickle"])
def test_weights_with_code(kind, tmp_path, mark, command):
    write_pickle(kind, tmp_path / "weights.pth", mark)
    recipe = write_recipe(tmp_path, steps=2)
    words = ("model.name=deeplabv2_mobilenetv2", f"model.weights={tmp_path / 'weights.pth'}", "--out", tmp_path / "run")
    assert_mistake(command("train", recipe, *words), "weights.pth")
    assert not (tmp_path / "run").exists()


def test_a_cache_with_code(tmp_path, mark, capsys):
    recipe = write_recipe(tmp_path, steps=2)
    train(recipe, tmp_path / "first")
    (cache,) = (tmp_path / "cache").iterdir()
    cache.write_bytes(pickle.dumps(Payload(mark)))
    train(recipe, tmp_path / "second")
    assert "the cached index is invalid and will be rebuilt" in capsys.readouterr().err


def tagged(mark):
    return f"x: !!python/object/apply:os.mkdir ['{mark}']\n"


def test_a_recipe_with_a_python_tag(tmp_path, mark, command):
    (tmp_path / "recipe.yaml").write_text(tagged(mark))
    assert_mistake(command("train", tmp_path / "recipe.yaml"), "recipe.yaml")


def test_an_override_with_a_python_tag(tmp_path, mark, command):
    recipe = write_recipe(tmp_path)
    result = command("train", recipe, f"train.lr=!!python/object/apply:os.mkdir ['{mark}']", "--out", tmp_path / "run")
    assert_mistake(result, "train.lr")


def test_a_grid_with_a_python_tag(tmp_path, mark, command):
    (tmp_path / "grid.yaml").write_text(tagged(mark))
    assert_mistake(command("lab", "run", tmp_path / "grid.yaml"), "grid.yaml")


def test_a_class_file_with_a_python_tag(tmp_path, mark, command):
    root = write_folder(tmp_path / "data", "train", count=1)
    (root / "classes.yaml").write_text(tagged(mark))
    code, output, error = command("data", "check", "folder", root)
    assert code
    assert "classes.yaml" in output + error
    assert "Traceback" not in output + error


def test_a_runs_own_config_with_a_python_tag(tmp_path, mark, command):
    train(write_recipe(tmp_path, steps=2), tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(tagged(mark))
    assert_mistake(command("evaluate", tmp_path / "run"), "config.yaml")
    assert_mistake(command("lab", "table", tmp_path / "run"), "config.yaml")


@pytest.mark.parametrize("part", ["images", "labels"])
@pytest.mark.parametrize("size", [(50_000, 50_000), (2_000_000_000, 1), (14_000, 14_000)])
def test_a_bomb_is_refused(part, size, tmp_path, command):
    root = write_folder(tmp_path / "data", "train", count=2)
    (root / part / "train" / "000.png").write_bytes(png(*size, b"\0" * 10_000_000))
    code, output, error = command("data", "check", "folder", root, "--split", "train")
    assert code == 1
    assert "000.png" in output
    assert "refused because of its size" in output
    assert "Traceback" not in output + error


def test_a_recipe_cannot_name_a_folder_elsewhere(tmp_path, monkeypatch, command):
    recipe = write_recipe(tmp_path, steps=1)
    monkeypatch.chdir(tmp_path)
    for name in ("../../outside", "..", "/outside", "a\nb", ".hidden", "a\\b"):
        content = {**yaml.safe_load(recipe.read_text()), "recipe": name}
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(content))
        assert_mistake(command("train", "other.yaml"), "recipe must be a plain name")
    assert not (tmp_path / "runs").exists()


def everything(folder, but):
    return {path for path in folder.rglob("*") if but not in (path, *path.parents)}


def test_odd_names_show_as_text_and_stay_inside(tmp_path, command):
    """Of a run, a recipe, a class and an image, in every command that shows or writes them."""
    recipe, run = write_recipe(tmp_path, steps=2, checkpoint_every=2), tmp_path / ODD
    root = (tmp_path / "data").rename(tmp_path / "data<b id=odd>&")  # what shows in the report's title
    content = yaml.safe_load(recipe.read_text())
    content |= {"recipe": "tiny<b id=odd>&", "data": content["data"] | {"root": str(root)}}
    recipe.write_text(yaml.safe_dump(content))
    classes = yaml.safe_load((root / "classes.yaml").read_text())
    classes["classes"][1]["name"] = UP
    (root / "classes.yaml").write_text(yaml.safe_dump(classes))
    for part in ("images", "labels"):
        (root / part / "val" / "000.png").rename(root / part / "val" / f"{UP.replace('/', '')}.png")
    (tmp_path / "cache").mkdir()
    before, model = everything(tmp_path, run), ("--model", "tiny_model.build")
    for words in (
        ("train", recipe, "--out", run),
        ("train", recipe, "--out", run),  # and of what is there already
        ("data", "check", "folder", root),
        ("evaluate", run, *model),
        ("predict", run, "--split", "val", "--out", run / "p", *model),
        ("predict", run, "--split", "val", "--weights", "--out", run / "p", *model),
        ("lab", "table", run),
        ("lab", "figures", run, "--out", run / "f"),
        ("lab", "report", run, "-o", run / "r.html"),
    ):
        code, output, error = command(*words)
        assert code == 0 or "the run exists" in error, error
        assert "\x1b[31m" not in output + error, words
        assert "a\nb" not in output + error, words
    page = (run / "r.html").read_text()
    assert "<b id=odd>" not in page
    assert page.count("data&lt;b id=odd&gt;&amp;") == 2  # the title, and the heading
    assert "a\\nb\\u001b[31mc\\u003cb id=odd\\u003e\\u0026/../../up" in page
    assert {path.parent for path in everything(tmp_path, run) - before} <= {tmp_path / "cache"}


def test_a_list_cannot_name_an_image_elsewhere(tmp_path, command):
    root = write_folder(tmp_path / "data", "train", count=1)
    (root / "all.txt").write_text("train/000\n../../outside\n")
    assert_mistake(command("data", "check", "folder", root, "--split", "all"), "points outside the folder")


def test_a_zip_bomb_of_a_checkpoint_is_no_checkpoint(tmp_path, command):
    """A file that unpacks to zeros without end is refused for what it is."""
    train(write_recipe(tmp_path, steps=2), tmp_path / "run")
    checkpoint_path(tmp_path / "run" / "checkpoints", 2).write_bytes(zlib.compress(b"\0" * 50_000_000, 9))
    assert_mistake(command("evaluate", tmp_path / "run"), "step-0000002.pt: the checkpoint is damaged")


def test_pictures_of_other_kinds_are_refused(tmp_path, command):
    root = write_folder(tmp_path / "data", "train", count=2)
    Image.fromarray(np.zeros((40, 60), np.float32)).save(root / "labels" / "train" / "000.tif")
    (root / "labels" / "train" / "000.png").unlink()
    code, output, _ = command("data", "check", "folder", root, "--split", "train")
    assert code == 1
    assert "000.tif" in output
