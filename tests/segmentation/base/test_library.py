"""Recipes and grids by name: all are part of the package, listed, and found; a path stays a path."""

import sys
from importlib.resources import files
from pathlib import Path

import pytest

from losspool.lab.grids import read_grid
from losspool.lab.library import GRIDS
from losspool.segmentation.base import Library, UserError
from losspool.segmentation.config import RECIPES, load_config
from trained_runs import assert_mistake

PACKAGE = files("losspool")


@pytest.mark.parametrize(
    ("library", "folder", "some"),
    [
        (RECIPES, "segmentation/config/library", {"camvid", "cityscapes", "streets", "streets-demo", "voc"}),
        (GRIDS, "lab/library", {"demo", "table1", "table2-voc", "camvid-table2"}),
    ],
    ids=["recipes", "grids"],
)
def test_every_file_of_the_package_has_a_name_and_a_line(library, folder, some):
    there = {each.name for each in PACKAGE.joinpath(folder).iterdir() if each.name.endswith(".yaml")}
    assert {f"{name}.yaml" for name in library.files} == there
    assert some <= set(library.files)
    for name, line in library.lines().items():
        assert f"\n# {line}\n" in "\n" + library.files[name].read_text()
        assert line.endswith(".")
        assert "schema" not in line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_an_installation_has_every_yaml_file():
    import tomllib

    root = Path(str(PACKAGE))
    settings = tomllib.loads((root.parents[1] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["losspool"]
    shipped = {path for pattern in patterns for path in root.glob(pattern)}
    assert set(root.rglob("*.yaml")) <= shipped


@pytest.mark.parametrize("text", ["./camvid", "mine/camvid", "camvid.yaml", "camvid.yml", Path("a/b.yaml")])
def test_a_path_is_a_path(text):
    assert str(RECIPES.find(text)) == str(Path(text))


def test_a_file_that_exists_wins_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("camvid").data.name == "camvid"
    Path("camvid").write_text("data: {name: streets}\n")
    assert load_config("camvid").data.name == "streets"


def test_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "camvid").mkdir()
    assert load_config(Path("camvid")).recipe == "camvid"


@pytest.mark.parametrize("name", ["camvit", "", "x" * 5000, "a\0b", "camvid\n"])
def test_an_unknown_name_gets_the_list(name):
    with pytest.raises(
        UserError,
        match=r"unknown recipe .*; choose from .*camvid, cityscapes, peanut, streets-demo, streets, voc, or name",
    ) as caught:
        load_config(name)
    assert "\n" not in str(caught.value)
    assert ("did you mean 'camvid'?" in str(caught.value)) == name.startswith("camvi")


def test_a_grid_names_its_recipe_or_a_path_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grids").mkdir()
    grid = tmp_path / "grids" / "mine.yaml"
    for recipe, expected in (("streets", "streets"), ("../own.yaml", str(tmp_path / "own.yaml"))):
        grid.write_text(f"recipe: {recipe}\nruns: [{{method: base}}]\n")
        assert read_grid(grid).recipe == expected
    grid.write_text("recipe: street\nruns: [{method: base}]\n")
    with pytest.raises(UserError, match=r"mine\.yaml: unknown recipe 'street' \(did you mean 'streets'\?\)"):
        read_grid(grid)
    (tmp_path / "grids" / "streets").write_text("")
    grid.write_text("recipe: streets\nruns: [{method: base}]\n")
    assert read_grid(grid).recipe == str(tmp_path / "grids" / "streets")


def test_a_command_of_a_grid_names_the_recipe(tmp_path):
    job = read_grid("demo").jobs(tmp_path)[0]
    assert job.train[:2] == ("train", "streets-demo")


def test_the_list_and_a_recipe_are_printed(command, tmp_path):
    code, listed, _ = command("recipes")
    assert code == 0
    for name, line in {**RECIPES.lines(), **GRIDS.lines()}.items():
        assert any(each.split(maxsplit=1) == [name, line] for each in listed.splitlines())
    code, shown, _ = command("recipes", "show", "camvid")
    assert code == 0
    (tmp_path / "mine.yaml").write_text(shown)
    mine, theirs = load_config(tmp_path / "mine.yaml", ["recipe=x"]), load_config("camvid", ["recipe=x"])
    assert mine == theirs
    schema = shown.splitlines()[0].split("$schema=")[1]
    assert Path(schema).is_file()
    assert command("recipes", "show", "demo")[1] == GRIDS.files["demo"].read_text()
    assert_mistake(command("recipes", "show", "nothing"), "unknown recipe or grid 'nothing'")


def test_names_are_not_shared():
    assert not set(RECIPES.files) & set(GRIDS.files)
    assert Library("x", *RECIPES.folders, *GRIDS.folders).files == {**RECIPES.files, **GRIDS.files}
