"""``losspool config``: every setting, its default and its meaning."""

import json
import re

import yaml

from losspool.segmentation.config import METHODS, Config, flat
from losspool.segmentation.config.json_schema import recipe_schema
from losspool.segmentation.config.listing import options
from trained_runs import assert_mistake


def test_every_setting_has_its_default_and_the_schemas_meaning():
    found = {option.key: option for option in options()}
    defaults = flat(Config())
    assert list(found) == list(defaults)
    schema = json.loads(recipe_schema())
    for key, option in found.items():
        value = yaml.safe_load(option.default)
        assert (tuple(value) if isinstance(value, list) else value) == defaults[key]
        *section, name = key.split(".")
        fields = schema
        if section:
            fields = schema["$defs"][schema["properties"][section[0]]["$ref"].rpartition("/")[2]]
        meaning = " ".join(fields["properties"][name]["description"].split())
        assert option.meaning.startswith(meaning)
        assert option.meaning == meaning or option.meaning.startswith(f"{meaning} One of ")


def test_names_to_choose_from_are_listed(command):
    assert "stored. One of apply, ignore." in " ".join(command("config", "exif")[1].split())
    found = " ".join(command("config", "method")[1].split())
    assert f"One of {', '.join(METHODS)}." in found


def test_the_command(command):
    code, output, _ = command("config")
    assert code == 0
    assert re.search(r"^train\.lr: 0\.01\n    Initial learning rate of the backbone\.$", output, re.MULTILINE)
    code, output, _ = command("config", "sampling")
    assert re.findall(r"^(\S+):", output, re.MULTILINE) == [
        f"sampling.{name}" for name in ("mix", "preference", "decay", "lag")
    ]
    assert_mistake(command("config", "learning"), "no setting has 'learning' in its name; the sections are data, model")
