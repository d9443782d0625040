"""Recipes, methods and overrides: what wins over what, and one sentence for every mistake."""

import contextlib
import dataclasses
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.recipes import dump_config, load_config
from losspool.segmentation.config.schema import METHODS, Config
from losspool.segmentation.losses import parse_m

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "field.yaml"
    path.write_text(
        "method: base\ntrain: {lr: 1e-3, steps: 50}\nsampling: {mix: 0.4}\n"
        "methods: {lmp: {train: {lr: 7e-3}}, base: {train: {batch: 3}}}\n"
    )
    return path


def test_there_are_recipes():
    assert {path.stem for path in RECIPES} >= {"cityscapes", "voc", "camvid", "streets"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_loads_with_every_method(path, method):
    config = load_config(path, [f"method={method}"])
    assert config.recipe == path.stem
    assert config.loss.name == METHODS[method]["loss.name"]
    uniform = method not in ("base_plus", "lmp")
    assert (config.sampling.mix == 0) == uniform


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_headed_by_command_hardware_duration_and_score(path):
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    assert f"losspool train recipes/{path.name}" in head
    for word in ("ardware", "mIoU"):
        assert word in head


def test_the_papers_settings():
    city, voc = (load_config(path, ["method=lmp"]) for path in RECIPES if path.stem in ("cityscapes", "voc"))
    assert (city.data.crop, city.train.batch, city.train.steps) == ((550, 550), 2, 165_000)
    assert (voc.data.crop, voc.train.batch, voc.train.steps) == ((321, 321), 4, 200_000)
    assert city.train.keep_steps == (150_000, 160_000, 165_000)
    assert voc.train.keep_steps == (180_000, 190_000, 200_000)
    for config in (city, voc):
        assert (config.train.lr, config.train.power, config.train.momentum) == (2.5e-4, 0.9, 0.9)
        assert (config.data.scale, config.data.flip) == ((0.5, 1.5), True)
        assert (config.loss.p, config.loss.share, config.loss.scope) == (1.3, 0.25, "image")
        assert (config.train.head_factor, config.train.weight_decay) == (10, 5e-4)
    rates = {path.stem: load_config(path, ["method=median_frequency"]).train.lr for path in RECIPES}
    assert (rates["cityscapes"], rates["voc"]) == (1.125e-4, 6.25e-5)


def test_what_wins_over_what(recipe):
    base = load_config(recipe)
    assert (base.method, base.loss.name, base.sampling.mix) == ("base", "cross_entropy", 0.0)
    assert (base.train.lr, base.train.batch, base.train.steps) == (1e-3, 3, 50)
    lmp = load_config(recipe, ["method=lmp"])
    assert (lmp.loss.name, lmp.sampling.mix, lmp.train.lr, lmp.train.batch) == ("lmp", 0.4, 7e-3, 4)
    own = load_config(recipe, ["method=lmp", "train.lr=0.5", "sampling.mix=1", "loss.name=focal"])
    assert (own.loss.name, own.sampling.mix, own.train.lr) == ("focal", 1.0, 0.5)


def test_a_runs_config_with_another_method_is_that_method(recipe, tmp_path):
    (tmp_path / "config.yaml").write_text(dump_config(load_config(recipe)))
    config = load_config(tmp_path / "config.yaml", ["method=lmp"])
    assert (config.loss.name, config.sampling.mix) == ("lmp", 0.5)


def test_a_recipe_whose_loss_is_not_its_methods_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("loss: {name: focal}")
    with pytest.raises(UserError, match=r"loss\.name 'focal' is not that of method 'lmp'; name a method that has it"):
        load_config(path)
    assert load_config(path, ["method=focal"]).loss.name == "focal"


@pytest.mark.parametrize("text", ["1e5", "007", "1:30", "no", "a #b", "${oc.env:HOME}", "'x'", "null: x", "C:\\x"])
def test_texts_are_taken_as_they_stand(recipe, tmp_path, text):
    config = load_config(recipe, [f"data.root={text}"])
    assert config.data.root == text
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


def test_a_dumped_config_loads_to_the_same(recipe, tmp_path):
    config = load_config(recipe, ["method=lmp", "sampling.mix=0.9", "loss.m=100px", "loss.p=inf", "data.root=a: b"])
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


MISTAKES = {
    "train.step=5": "unknown key 'train.step'; did you mean 'train.steps'?",
    "trian.steps=5": "unknown key 'trian'; did you mean 'train'?",
    "train.steps=many": "train.steps: Value 'many' of type 'str' could not be converted to Integer",
    "train.steps=0": "train.steps must be at least 1, got 0",
    "train.steps=null": "train.steps: Incompatible value 'None'",
    "train.lr=-1": "train.lr must be positive, got -1.0",
    "train.lr=nan": "train.lr must be positive, got nan",
    "train=5": "train holds settings by name, got 5",
    "data.crop=[1]": "data.crop",
    "data.scale=[2,1]": "data.scale must name the smaller scale first, got [2.0, 1.0]",
    "loss.m=1": "loss.m = 1 could be a share or a number of pixels: write 1px or a percentage",
    "loss.m=110%": "loss.m must be more than 0 and at most 100%, got '110%'",
    "loss.m=0px": "loss.m must be like 25%, 0.25 or 1000px, got '0px'",
    "loss.p=0.5": "loss.p must lie between 1 and inf, got 0.5",
    "loss.name=dice": "loss.name must be one of cross_entropy, lmp,",
    "loss.scope=world": "loss.scope must be one of image, batch, global, got 'world'",
    "method=lpm": "method must be one of base, base_plus,",
    "sampling.decay=1": "sampling.decay must be at least 0 and below 1, got 1.0",
    "evaluate.tiling=six": "evaluate.tiling must be one of none, efficient, optimized, got 'six'",
    "evaluate.scales=[]": "evaluate.scales must name at least one scale",
    "train.precision=8": "train.precision must be one of 32-true,",
    "seed": "an override is written as key=value, got 'seed'",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_mistakes_name_the_field(recipe, override):
    with pytest.raises(UserError) as caught:
        load_config(recipe, [override])
    assert MISTAKES[override] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train: {stepz: 1}", "unknown key 'train.stepz'; did you mean 'train.steps'?"),
        ("methods: {lpm: {}}", "unknown key 'lpm'; did you mean 'lmp'?"),
        ("methods: [lmp]", "'methods' must give settings by method"),
        ("methods: {base: {train: {lrr: 1}}}", "methods.base: unknown key 'train.lrr'"),
        ("[1, 2]", "a recipe holds settings by name, got list"),
        ("a: [", "not valid YAML"),
        ("x: !!python/object/apply:os.system ['touch pwned']", "not valid YAML"),
    ],
)
def test_bad_recipes_name_the_file(tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text(f"method: base\n{text}" if text[0] not in "[a" else text)
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        load_config(path)
    assert told in str(caught.value)
    assert not (tmp_path / "pwned").exists()


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.yaml: the recipe does not exist"):
        load_config(tmp_path / "no.yaml")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20), st.one_of(st.text(max_size=20), st.floats(), st.integers(), st.none(), st.booleans()))
def test_whatever_is_overridden_only_user_errors_leave(tmp_path_factory, key, value):
    path = tmp_path_factory.getbasetemp() / "empty.yaml"
    path.write_text("")
    for name in (key, "loss.m", "train.lr", "data.root", "data.crop"):
        with contextlib.suppress(UserError):
            assert isinstance(load_config(path, [f"{name}={value}"]), Config)


@pytest.mark.parametrize(("text", "value"), [("25%", 0.25), ("100%", 1.0), (" 12.5 % ", 0.125), ("7px", 7), (0.5, 0.5)])
def test_m(text, value):
    assert parse_m(text) == value
    assert type(parse_m(text)) is type(value)


@pytest.mark.parametrize("value", [1, 0, True, 0.0, 1.5, math.nan, "1", "px", "%", "-3px", "1.5px", None, [1]])
def test_bad_m(value):
    with pytest.raises(UserError, match=r"loss\.m"):
        parse_m(value)


def test_every_field_is_documented():
    """The docstring below a field is all the documentation that it has."""
    source = (Path(__file__).parents[3] / "src/losspool/segmentation/config/schema.py").read_text()
    for section in (each.default_factory for each in dataclasses.fields(Config)):
        for each in dataclasses.fields(section) if dataclasses.is_dataclass(section) else ():
            assert re.search(rf'^    {each.name}: .*\n    """', source, re.MULTILINE), each.name
