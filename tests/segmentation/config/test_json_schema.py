"""The JSON schema that editors check recipes with: current, documented, and of one mind with the loader."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from losspool.segmentation.base import UserError
from losspool.segmentation.config import METHODS, RECIPES, load_config
from losspool.segmentation.config.json_schema import FILE, recipe_schema

ROOT = Path(__file__).parents[3]
LIBRARY = RECIPES.files.values()
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))


def accepted(text: str) -> bool:
    return Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))


def test_the_file_is_current():
    assert FILE.read_text(encoding="utf-8") == recipe_schema(), "run python -m losspool.segmentation.config.json_schema"


def test_it_is_a_schema_of_recipes():
    Draft202012Validator.check_schema(SCHEMA)
    assert {"data", "loss", "methods", "resolved"} < SCHEMA["properties"].keys()
    assert SCHEMA["properties"]["method"]["anyOf"][0]["enum"] == list(METHODS)


def test_every_field_is_documented_and_no_other_is_allowed():
    for section in (SCHEMA, *SCHEMA["$defs"].values()):
        assert section["additionalProperties"] is False
        for name, field in section["properties"].items():
            assert "description" in field or "description" in SCHEMA["$defs"][Path(field["$ref"]).name], name


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_every_recipe_names_the_schema_and_fits_it(path):
    text = path.read_text()
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert (path.parent / named[1]).resolve() == FILE.resolve()
    Draft202012Validator(SCHEMA).validate(yaml.safe_load(text))


def test_a_runs_config_fits_it():
    assert accepted((ROOT / "tests/fixtures/run-0.1/config.yaml").read_text())


GOOD = [
    *("train: {lr: 1e-4}", "train: {lr: 1}", "train: {steps: 1e3}", "seed: 3", "data: {root: null}"),
    *("loss: {m: 25%}", "loss: {m: 12.5 %}", "loss: {m: 0.25}", "loss: {m: 1000px}", "loss: {m: 1e-3}"),
    *("loss: {p: .inf}", "loss: {p: 1}", "method: mine.losses.dice", "model: {name: my_models.build}"),
    *("loss: {m: {from: 100%, to: 25%, steps: 1000}}", "loss: {p: {from: .inf, to: 1.3, steps: 1e3}}"),
    *("loss: {class_weights: effective}", "loss: {class_weights: [1, 2.5]}", "loss: {min_kept: 100000}"),
    *("loss: {terms: {lmp: 1, dice: 0.5}}", "loss: {terms: {lmp: 1, mine.losses.poly: 1}}", "loss: {min_kept: 6%}"),
    *("methods: {lmp: {train: {lr: 7e-3}}}", "methods: {mine.dice: {train: {lr: 1}}}", "data: {crop: [320, 321]}"),
    *("data: {exif: ignore}", "data: {intensity: full}", "data: {intensity: [-1000, 2000.5]}", "data: {crop: 320}"),
]
BAD = [
    *("train: {lr: fast}", "train: {lr: 0}", "train: {steps: 2.5}", "seed: -1", "data: {root: 5}"),
    *("loss: {m: 25}", "loss: {m: much}", "loss: {m: 1.5px}", "loss: {p: 0.5}", "loss: {scope: world}"),
    *("method: lpm", "model: {name: deeplab}", "methods: {lpm: {}}", "methods: {lmp: {trian: {}}}", "train: 5"),
    *("loss: {m: {from: 100%, to: 25%}}", "loss: {p: {from: 0.5, to: 2, steps: 9}}", "loss: {min_kept: 0}"),
    *(
        "loss: {class_weights: rare}",
        "loss: {class_weights: [-1]}",
        "loss: {terms: {lpm: 1}}",
        "loss: {terms: {lmp: 0}}",
    ),
    *("data: {crop: [320]}", "data: {crop: 0}", "data: {crop: wide}", "train: {step: 5}", "trian: {}"),
    *("data: {exif: maybe}", "data: {intensity: dark}", "data: {intensity: 4095}"),
    *("data: {intensity: [1]}", "data: {intensity: [1, 2, 3]}"),
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_loader_takes_the_schema_takes(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    load_config(tmp_path / "x.yaml")
    assert accepted(text)


@pytest.mark.parametrize("text", BAD)
def test_what_the_loader_refuses_the_schema_refuses(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "x.yaml"))):
        load_config(tmp_path / "x.yaml")
    assert not accepted(text)
