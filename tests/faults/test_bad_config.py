"""Whatever a config or a class file holds, the only error raised is one that says what to fix."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.bad_files import bounded_memory, damaged, many, read_or_refused
from losspool.segmentation.base import UserError, yaml_file
from losspool.segmentation.config.recipes import RECIPES as LIBRARY
from losspool.segmentation.config.recipes import dump_config, load_config
from losspool.segmentation.config.schema import Config
from losspool.segmentation.data.files.labels import ClassFile, read_classes
from small_data import CLASSES, VOID

RECIPES = [path.read_bytes() for path in LIBRARY.files.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("input")


# The pieces that YAML gives a meaning, the names of settings, and numbers that few expect.
PIECES = [
    *"[]{},:?&*!|>%@`'\"#- \n\t~\\$=<",
    *(": ", "- ", "\n  ", "---\n", "...\n", "<<: ", "&a ", "*a", "*a,", "!!int ''", "!!float ''", "!!bool x", "!!set "),
    *("!!binary x", "!!timestamp x", "!!omap ", "!!str ", "!!null x", "!!python/name:os.system ", "2001-99-99", "1:60"),
    *("resolved: true\n", "method: base\n", "methods: ", "lmp: ", "recipe: ", "seed: ", "data: ", "loss: ", "train: "),
    *("{crop: ", "{root: ", "{m: ", "{name: ", "{steps: ", "{lr: ", "{keep_steps: ", "model: {frozen_bn: ", "method"),
    *(
        "classes: ",
        "ignore: ",
        "ignore_color: ",
        "- {name: a, id: 0, color: [1, 2, 3]}\n",
        "color: [0, 0, 0]",
        "id: 256",
    ),
    *(
        "1",
        "0",
        "-1",
        "1e400",
        ".nan",
        ".inf",
        "1_0",
        "0x" + "f" * 4000,
        "9" * 5000,
        "0o7",
        "25%",
        "1px",
        "true",
        "null",
    ),
    *("${", "\\${oc.env:HOME}", "???", "\0", "\ud800", "\ufeff", "é", "a" * 5000, "[" * 60, "x." * 2000),
]
pieces = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
SECTIONS = {name: default.default_factory for name, default in Config.__dataclass_fields__.items()}
KEYS = [f"{name}.{key}" for name, made in SECTIONS.items() for key in getattr(made, "__dataclass_fields__", {})] + list(
    SECTIONS
)


def nested(key, value):
    head, dot, rest = key.partition(".")
    return {head: {rest: value} if dot else value}


def written(key, value):
    head, dot, rest = key.partition(".")
    return f"{head}: {{{rest}: {value}}}" if dot else f"{head}: {value}"


keys, words = st.sampled_from(KEYS), st.sampled_from(PIECES)
contents = st.one_of(
    st.binary(max_size=60),
    pieces.map(lambda text: text.encode("utf-8", "surrogatepass")),
    damaged(RECIPES),
    st.builds(lambda key, value: yaml.safe_dump(nested(key, value)).encode(), keys, values),
    st.builds(lambda key, value: written(key, value).encode("utf-8", "surrogatepass"), keys, words),
)
overrides = st.just([]) | st.lists(
    pieces | st.builds("{}={}".format, keys | pieces, words | pieces | values), min_size=1, max_size=3
)


@many
@given(content=contents, overrides=overrides)
def test_only_user_errors_leave_the_config_loader(folder, content, overrides):
    path = folder / "recipe.yaml"
    path.write_bytes(content)
    config = read_or_refused(lambda: load_config(path, overrides))
    if config is None:
        return
    assert isinstance(config, Config)
    path.write_text(dump_config(config), encoding="utf-8")  # what was accepted, the run's folder can keep
    assert load_config(path) == config


@settings(many, max_examples=60)
@given(text=st.text("\\${}:.ab?", max_size=12))
def test_texts_with_the_signs_of_other_config_languages_stay_as_they_are(folder, text):
    path = folder / "empty.yaml"
    path.write_text("")
    assert load_config(path, [f"data.root={text}"]).data.root == text


@many
@given(content=st.one_of(contents, damaged([yaml.safe_dump({"classes": CLASSES, "ignore": VOID}).encode()])))
def test_only_user_errors_leave_the_class_file(folder, content):
    path = folder / "classes.yaml"
    path.write_bytes(content)
    assert isinstance(read_or_refused(lambda: read_classes(path)), ClassFile | None)


LAUGHS = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12))
BOMBS = {
    "a billion of laughs": f"a: &a [lol]\n{LAUGHS}data: {{crop: *m}}\n",
    "a billion of merged keys": "a: &a {x: 1}\n" + LAUGHS.replace("[", "{<<: [").replace("]", "]}"),
    "a value that holds itself": "data: &d {crop: *d}\n",
    "a list that holds itself": "methods: &m [*m]\n",
    "thousands of levels": "data: {crop: " + "[" * 5000 + "]" * 5000 + "}",
    "many values": "data: {crop: [" + "1," * 21_000 + "]}",
    "a large file": "# " + "x" * (1 << 24),
    "a long number": "train: {lr: 1" + "0" * 400 + "}",
    "a long hexadecimal number": "loss: {m: 0x" + "f" * 4000 + "}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bombs_are_refused_before_they_take_memory(folder, name):
    path = folder / "bomb.yaml"
    path.write_text(BOMBS[name])
    with bounded_memory(256 << 20):
        for read in (load_config, read_classes):
            with pytest.raises(UserError, match=r"bomb\.yaml: ") as caught:
                read(path)
            assert len(str(caught.value)) < 1000


MISTAKES = {
    "resolved: true\nmethod: base\nloss: 5": "loss must hold settings by name, got 5",
    "seed: !!int ''": "a value does not match its tag",
    "train: {keep_steps: [1, [2]]}": "train.keep_steps[1] must be a whole number, got [2]",
    "train: {steps: {a: 1}}": "train.steps must be a whole number, got {'a': 1}",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_that_fuzzing_found(folder, text):
    path = folder / "mistake.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(path, ["method=lmp"])
    assert MISTAKES[text] in str(caught.value)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_half_of_a_surrogate_pair_is_refused(monkeypatch, loader):
    """It could be read by one of the loaders, but be written by neither as UTF-8."""
    monkeypatch.setattr(yaml_file, "_Loader", loader)
    with pytest.raises(ValueError, match=r"surrogate|invalid Unicode"):
        yaml_file.parse_yaml(r'name: "\ud800"')
    with pytest.raises(UserError, match=r"an override must be UTF-8, got 'model\.args\.path="):
        load_config("camvid", ["model.args.path=\udcff"])
