"""Recipes, methods and overrides: what wins over what, and one sentence for every mistake."""

import contextlib
import dataclasses
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from losspool.segmentation.base import UserError, section, validate
from losspool.segmentation.config.old_keys import with_new_keys
from losspool.segmentation.config.recipes import RECIPES, dump_config, load_config, merge, put
from losspool.segmentation.config.schema import METHODS, Config, TrainConfig
from losspool.segmentation.losses import LossConfig, parse_m

ROOT = Path(__file__).parents[3]
LIBRARY = list(RECIPES.files.values())


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "field.yaml"
    path.write_text(
        "method: base\ntrain: {lr: 1e-3, steps: 50}\nsampling: {mix: 0.4}\n"
        "methods: {lmp: {train: {lr: 7e-3}}, base: {train: {batch: 3}}}\n"
    )
    return path


def test_there_are_recipes():
    assert {path.stem for path in LIBRARY} >= {"cityscapes", "voc", "camvid", "camvid-strong", "peanut", "streets"}


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_loads_with_every_method(path, method):
    config = load_config(path, [f"method={method}"])
    assert config.recipe == path.stem
    assert config.loss.name == METHODS[method]["loss.name"]
    uniform = method not in ("base_plus", "lmp")
    assert (config.sampling.mix == 0) == uniform


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_every_recipe_is_headed_by_command_hardware_duration_and_score(path):
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    assert f"losspool train {path.stem} " in head
    for word in ("ardware", "uration", "mIoU"):
        assert word in head


def test_the_papers_settings():
    city, voc = (load_config(path, ["method=lmp"]) for path in LIBRARY if path.stem in ("cityscapes", "voc"))
    assert (city.data.crop, city.train.batch, city.train.steps) == ((550, 550), 2, 165_000)
    assert (voc.data.crop, voc.train.batch, voc.train.steps) == ((321, 321), 4, 200_000)
    assert city.train.keep_steps == (150_000, 160_000, 165_000)
    assert voc.train.keep_steps == (180_000, 190_000, 200_000)
    for config in (city, voc):
        assert (config.train.lr, config.train.power, config.train.momentum) == (2.5e-4, 0.9, 0.9)
        assert (config.data.scale, config.data.flip) == ((0.5, 1.5), True)
        assert (config.loss.p, config.loss.share, config.loss.scope) == (1.3, 0.25, "image")
        assert (config.train.head_factor, config.train.weight_decay) == (10, 5e-4)
    rates = {path.stem: load_config(path, ["method=median_frequency"]).train.lr for path in LIBRARY}
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


@pytest.mark.parametrize("text", ["256", "2.56e2", "[256, 256]"])
def test_one_number_is_a_square(recipe, text):
    assert load_config(recipe, [f"data.crop={text}"]).data.crop == (256, 256)


OWN = "model.name=mypackage.build"


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        ([OWN], None),
        (["model.name=smp:Unet"], None),
        ([OWN, "model.weights=mine.pth"], "mine.pth"),
        (["model.name=deeplabv3plus_mobilenetv2"], "net.pth"),
        (["model.name=deeplabv2_mobilenetv2"], "net.pth"),
        ([], "net.pth"),
    ],
)
def test_a_recipes_weights_are_not_for_a_model_of_ones_own(tmp_path, overrides, kept, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text("model: {name: deeplabv2_mobilenetv2, weights: net.pth}")
    assert load_config(path, overrides).model.weights == kept
    said = capsys.readouterr().err
    assert ("model.weights=net.pth of the recipe is for deeplabv2_mobilenetv2" in said) == (kept is None)
    path.write_text("model: {name: mypackage.build, weights: net.pth}")
    assert load_config(path, [OWN]).model.weights == "net.pth"


def test_a_dumped_config_loads_to_the_same(recipe, tmp_path):
    config = load_config(recipe, ["method=lmp", "sampling.mix=0.9", "loss.m=100px", "loss.p=inf", "data.root=a: b"])
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


MISTAKES = {
    "train.step=5": "unknown key 'train.step'; did you mean 'train.steps'?",
    "trian.steps=5": "unknown key 'trian'; did you mean 'train'?",
    "train.steps=many": "train.steps must be a whole number, got 'many'",
    "train.steps=0": "train.steps must be at least 1, got 0",
    "train.steps=null": "train.steps must be a whole number, got None",
    "train.lr=-1": "train.lr must be greater than 0, got -1",
    "train.lr=nan": "train.lr must be a finite number, got nan",
    "train=5": "train must hold settings by name, got 5",
    "train.steps=true": "train.steps must be a number, got True",
    "train.steps=2.5": "train.steps must be a whole number, got 2.5",
    "train.steps.a=1": "train.steps must be a whole number, got {'a': 1}",
    "train.keep_steps=[1,x]": "train.keep_steps[1] must be a whole number, got 'x'",
    "data.flip=maybe": "data.flip must be true or false, got 'maybe'",
    "data.crop=[]": "data.crop must have 2 entries, got []",
    "data.crop=[1]": "data.crop must have 2 entries, got [1]",
    "data.crop=[1,2,3]": "data.crop must have at most 2 entries, got [1, 2, 3]",
    "data.crop=[1,0]": "data.crop[1] must be at least 1, got 0",
    "data.intensity=4095": "data.intensity must be auto, full or two numbers [low, high], got 4095",
    "data.intensity=[9,9]": "data.intensity must name the lower value first, got [9, 9]",
    "data.exif=no": "data.exif must be one of apply, ignore, got False",
    "data.crop=0": "data.crop[0] must be at least 1, got 0",
    "data.crop=true": "data.crop must be a number or a list [height, width], got True",
    "data.crop=wide": "data.crop must be a number or a list [height, width], got 'wide'",
    "model.name=UNet": "(did you mean 'losspool.segmentation.models.unet.build'?), got 'UNet'",
    "data.name=citiscapes": "streets or an import path (did you mean 'cityscapes'?), got 'citiscapes'",
    "model.name=deeplab": "model.name must be one of deeplabv2_resnet101, deeplabv2_resnet50,",
    "model.output_stride=4": "model.output_stride must be one of 8, 16, 32, got 4",
    "data.scale=[2,1]": "data.scale must name the smaller scale first, got [2, 1]",
    "loss.m=1": "loss.m must have a unit, 1px or a percentage, got 1",
    "loss.m=110%": "loss.m must be more than 0 and at most 100%, got '110%'",
    "loss.m=0px": "loss.m must be like 25%, 0.25 or 1000px, got '0px'",
    "loss.p=0.5": "loss.p must be at least 1, got 0.5",
    "loss.name=tversky": "loss.name must be one of cross_entropy, lmp,",
    "loss.scope=world": "loss.scope must be one of image, batch, global, got 'world'",
    "method=lpm": "lmp_loss_only, lmp or an import path (did you mean 'lmp'?), got 'lpm'",
    "sampling.decay=1": "sampling.decay must be less than 1, got 1",
    "evaluate.tiling=six": "evaluate.tiling must be one of none, efficient, optimized, got 'six'",
    "evaluate.scales=[]": "evaluate.scales must have 1 or more entries, got []",
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
    ("text", "message"),
    [
        ("train: {stepz: 1}", "unknown key 'train.stepz'; did you mean 'train.steps'?"),
        ("methods: {lpm: {}}", "methods.lpm must be one of base, base_plus,"),
        ("methods: [lmp]", "methods must hold settings by name, got ['lmp']"),
        (
            "methods: {base: {train: {lrr: 1}}}",
            "unknown key 'methods.base.train.lrr'; did you mean 'methods.base.train.lr'?",
        ),
        ("[1, 2]", "bad.yaml: must hold settings by name, got [1, 2]"),
        ("train: {steps: 0}", "train.steps must be at least 1, got 0"),
        ("methods: {focal: {train: {lr: 0}}}", "methods.focal.train.lr must be greater than 0, got 0"),
        ("1: 2", "unknown key '[1]'"),
        ("data: {root: no}", "data.root must be text (in YAML: in quotes), got False"),
        ("train:", "train must hold settings by name, got None"),
        ("a: [", "not valid YAML"),
        ("x: !!python/object/apply:os.system ['touch pwned']", "not valid YAML"),
    ],
)
def test_bad_recipes_name_the_file(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text(f"method: base\n{text}" if text[0] not in "[a" else text)
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert not (tmp_path / "pwned").exists()


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.yaml: the recipe does not exist"):
        load_config(tmp_path / "no.yaml")


@settings(max_examples=50, deadline=None, derandomize=True)
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


PYTHON_MISTAKES = {
    "loss.p must be at least 1, got 0.5": lambda: LossConfig(p=0.5),
    "loss.name must be one of cross_entropy, lmp,": lambda: LossConfig("tversky"),
    "loss.scope must be one of image, batch, global, got 'world'": lambda: replace(LossConfig(), scope="world"),
    "loss.m must have a unit, 2px or a percentage, got 2": lambda: LossConfig(m=2),
    "train.steps must be at least 1, got 0": lambda: TrainConfig(0),
    "train must hold settings by name, got 5": lambda: Config(train=5),
}


@pytest.mark.parametrize("message", PYTHON_MISTAKES)
def test_mistakes_in_python_are_the_same_sentences(message):
    with pytest.raises(UserError, match=rf"^{re.escape(message)}"):
        PYTHON_MISTAKES[message]()


@pytest.mark.parametrize("arguments", [{"pp": 1}, {"name": "lmp", "p": 1.3, "q": 4}])
def test_calls_with_unknown_arguments_fail_like_any_other(arguments):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        LossConfig(**arguments)


@pytest.mark.parametrize(("text", "steps"), [("1e3", 1000), ("5.0", 5), ("'7'", 7)])
def test_whole_numbers_may_be_written_in_any_way(recipe, text, steps):
    assert load_config(recipe, [f"train.steps={text}"]).train.steps == steps


STORED = sorted(path for folder in ("results", "tests/fixtures") for path in (ROOT / folder).rglob("config.yaml"))


def test_the_configs_of_stored_runs_load():
    """Every stored value stays, and what is newer than the run has its default."""
    assert len(STORED) > 30
    defaults = yaml.safe_load(dump_config(Config()))
    for path in STORED:
        loaded = yaml.safe_load(dump_config(load_config(path)))
        stored = with_new_keys(yaml.safe_load(path.read_text()))
        for part, values in loaded.items():
            expected = defaults[part] | stored[part] if isinstance(values, dict) else stored[part]
            assert values == expected, (path, part)


@section("part")
class Part:
    size: int = 1
    value: str | dict[str, Any] = "25%"
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


@section()
class Whole:
    part: Part = dataclasses.field(default_factory=Part)


def test_a_mapping_may_be_a_fields_value():
    values: dict = {}
    merge(Whole, values, {"part": {"value": {"from": "100%", "to": "25%"}, "args": {"depth": 3}}})
    merge(Whole, values, {"part": {"size": 2, "args": {"width": 4}}})
    assert validate(Whole, values) == Whole(Part(2, {"from": "100%", "to": "25%"}, {"width": 4}))


def test_a_dotted_name_reaches_into_a_mapping():
    recipe = {"part": {"args": {"depth": 3, "inner": {"a": 1}}}}
    values: dict = {}
    merge(Whole, values, recipe)
    for key, value in {"part.args.name": "x", "part.args.inner.b": 2, "part.value.to": "5%", "part.size": 7}.items():
        put(Whole, values, key, value)
    args = {"depth": 3, "inner": {"a": 1, "b": 2}, "name": "x"}
    assert validate(Whole, values) == Whole(Part(7, {"to": "5%"}, args))
    assert recipe == {"part": {"args": {"depth": 3, "inner": {"a": 1}}}}
    put(Whole, values, "part.args", {})
    assert validate(Whole, values).part.args == {}


def test_a_section_cannot_become_a_value():
    values: dict = {"part": {"size": 2}}
    with pytest.raises(UserError, match="part must hold settings by name, got 5"):
        put(Whole, values, "part", 5)
