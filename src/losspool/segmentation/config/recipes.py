"""Load a config. Precedence: defaults < recipe < method < the recipe's methods < overrides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from losspool.segmentation.base import Library, UserError, is_utf8, parse_yaml, read_yaml, say, validate, yaml_text
from losspool.segmentation.config.old_keys import overrides_with_new_keys, with_new_keys
from losspool.segmentation.config.schema import Config, DataConfig, Recipe, method_settings
from losspool.segmentation.data import Reading
from losspool.segmentation.models import MODELS

RECIPES = Library("recipe", Path(__file__).with_name("library"))
"""The recipes that come with the package."""


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The config of ``losspool train path overrides…``: a recipe's name or path, or a run's own config.yaml."""
    path = RECIPES.find(path)
    content = read_yaml(path, "the recipe")
    stated = {} if content is None else with_new_keys(content, f"{path}: ")
    recipe = validate(Recipe, stated, f"{path}: ")
    chosen = overrides_with_new_keys([_override(text) for text in overrides])
    method = Config(method=dict(chosen).get("method", recipe.method)).method
    preset = method_settings(method)

    values: dict[str, Any] = {"recipe": path.stem}
    merge(Config, values, {key: value for key, value in stated.items() if key not in ("methods", "resolved")})
    if recipe.resolved and method == recipe.method:
        preset = {}  # the file holds every value: the presets are in it, and may have been overridden
    elif recipe.resolved:
        for section, field in (("loss", "name"), ("sampling", "mix")):  # the old method's
            values.get(section, {}).pop(field, None)
    named = values.get("loss", {}).get("name")
    if preset and named not in (None, preset["loss.name"]):
        raise UserError(f"{path}: loss.name {named!r} is not that of method {method!r}; name a method that has it")
    for key, value in {"method": method, **preset}.items():
        put(Config, values, key, value)
    merge(Config, values, stated.get("methods", {}).get(method, {}))
    for key, value in chosen:
        put(Config, values, key, value)
    _drop_foreign_weights(recipe, values, {key for key, _ in chosen})
    config = validate(Config, values)
    config.loss.check_terms()  # only now: a recipe may state the terms, and a method the name
    return config


def parse_reading(overrides: Sequence[str]) -> Reading:
    """How image files are read, from the overrides of a command that takes no recipe."""
    values: dict[str, Any] = {}
    for key, value in map(_override, overrides):
        section, _, name = key.partition(".")
        if section != "data" or name not in _types(Reading):
            raise UserError(f"only data.exif and data.intensity can be set here, got {key!r}")
        values[name] = value
    return DataConfig(**values).reading


def _drop_foreign_weights(recipe: Recipe, values: dict[str, Any], chosen: set[str]) -> None:
    """Leave out a recipe's weights if the overrides name a network that is not built in, and no weights for it."""
    model = values.get("model", {})
    name, weights = model.get("name"), model.get("weights")
    if "model.name" not in chosen or "model.weights" in chosen or name in (recipe.model.name, *MODELS) or not weights:
        return
    say(f"model.weights={weights} of the recipe is for {recipe.model.name}, and is not loaded into {name}")
    model["weights"] = None


def dump_config(config: Config) -> str:
    """YAML that :func:`load_config` reads back to the same config."""
    return yaml_text({"resolved": True, **asdict(config)})


def flat(section: Any, prefix: str = "") -> dict[str, Any]:
    """The settings of a config by their dotted names. A mapping is one value."""
    found: dict[str, Any] = {}
    for each in fields(section):
        value, name = getattr(section, each.name), f"{prefix}{each.name}"
        found |= flat(value, f"{name}.") if is_dataclass(value) else {name: value}
    return found


def merge(schema: Any, values: dict[str, Any], layer: dict[str, Any]) -> None:
    """Write ``layer`` over ``values``. Sections merge field by field; a field's value is replaced, a mapping too."""
    for key, value in layer.items():
        section = _type(schema, key)
        if not is_dataclass(section):
            values[key] = value
        elif isinstance(value, dict):
            merge(section, values.setdefault(key, {}), value)
        else:
            raise UserError(f"{key} must hold settings by name, got {value!r}")


def put(schema: Any, values: dict[str, Any], key: str, value: Any) -> None:
    """Set one value by its dotted name. A name may reach into a mapping: ``model.args.depth`` keeps the other args."""
    *parents, last = key.split(".")
    for part in parents:
        inner = values.get(part)
        values[part] = dict(inner) if isinstance(inner, dict) else {}
        schema, values = _type(schema, part), values[part]
    merge(schema, values, {last: value})


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"an override is written as key=value, got {text!r}")
    if not is_utf8(value):
        raise UserError(f"an override must be UTF-8, got {text!r}")
    kind: Any = Config
    for part in key.split("."):
        kind = _type(kind, part)
    if kind in (str, str | None):
        return key, None if value == "null" else value  # keep paths such as 1e5 or no as text
    try:
        return key, parse_yaml(value)
    except ValueError:
        return key, value  # a text such as a path with a colon


def _type(schema: Any, field: Any) -> Any:
    """The type of a section's field; None where there is none."""
    return _types(schema).get(field)


@cache  # evaluating the annotations of a section takes milliseconds, and a config has a hundred fields
def _types(schema: Any) -> dict[str, Any]:
    return get_type_hints(schema) if is_dataclass(schema) else {}
