"""Paths that no file can have: one sentence that names them, and no traceback."""

import pytest
import yaml

from runs_for_tests import train, write_recipe
from trained_runs import assert_mistake, small_config, write_run

PATHS = {
    "a null byte": "a\0b",
    "300 letters": "a" * 300,
    "no such user": "~nobody-of-that-name/a",
    "deep": "a/" * 3000 + "a",
}


@pytest.fixture(params=PATHS)
def path(request):
    return PATHS[request.param]


def with_path(folder, part, key, value):
    recipe = write_recipe(folder, steps=2)
    content = yaml.safe_load(recipe.read_text())
    content[part][key] = value
    if key == "weights":
        content[part]["name"] = "deeplabv2_resnet18"
    recipe.write_text(yaml.safe_dump(content))
    return recipe


@pytest.mark.parametrize(
    ("part", "key", "reported"),
    [
        ("data", "root", "the root of the data"),
        ("data", "train", "no such folder"),
        ("data", "val", "no such folder"),
        ("model", "weights", "no such weights file"),
    ],
)
def test_in_a_recipe(tmp_path, command, path, part, key, reported):
    path = f"{path}.pth" if key == "weights" else path
    recipe = with_path(tmp_path, part, key, path)
    assert_mistake(command("train", recipe, "--out", tmp_path / "run"), reported)
    assert not (tmp_path / "run").exists()


def test_as_a_cache(tmp_path, monkeypatch, capsys, path):
    """It costs the cache alone, like any folder that cannot be written."""
    monkeypatch.chdir(tmp_path)
    train(with_path(tmp_path, "data", "cache", path), tmp_path / "run")
    reported = [line for line in capsys.readouterr().err.splitlines() if "cache" in line or "index" in line]
    if not path.startswith("~"):  # which may be a folder's name
        (line,) = reported
        assert "cannot be written" in line
        assert line.endswith("; the index will be built again next time")


def test_a_cache_in_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    train(with_path(tmp_path, "data", "cache", "~/cache"), tmp_path / "run")
    assert [found.suffix for found in (tmp_path / "home" / "cache").iterdir()] == [".safetensors"]


@pytest.mark.parametrize("length", [300, 6000])
def test_in_a_command(tmp_path, command, length):
    """A null byte cannot be in one."""
    path = "a/" * (length // 2) if length > 300 else "a" * length
    run = write_run(tmp_path / "run", small_config(tmp_path / "data")).path
    model = ("--model", "tiny_model.build")
    for words, reported in {
        ("data", "check", "folder", tmp_path / path): "the root of the data",
        ("data", "check", "folder", tmp_path / "data", "--split", path): "no such folder",
        ("evaluate", run, "--split", path, *model): "no such folder",
        ("predict", run, tmp_path / path, "--out", tmp_path / "out", *model): "there is no such image or folder",
        ("predict", run, "--split", path, "--out", tmp_path / "out", *model): "no such folder",
        ("predict", run, "--split", "val", "--out", tmp_path / path, *model): "cannot be written (File name too long)",
    }.items():
        assert_mistake(command(*words), reported)
