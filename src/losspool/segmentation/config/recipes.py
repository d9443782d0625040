"""From a recipe and overrides to a config: defaults, recipe, method, the recipe's word on the method, overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from reprlib import repr as short  # what is given may be endless
from typing import Any, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from losspool.segmentation.base import UserError, is_import_path, parse_yaml, read_yaml
from losspool.segmentation.config.schema import METHODS, Config, method_settings


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The config of ``losspool train path overrides…``. ``path`` may be a run's own config.yaml.

    A recipe may hold ``methods``: what differs when a method is trained, such as its learning rate.
    """
    path = Path(path)
    recipe = _parsed(path)
    methods = recipe.pop("methods", None) or {}
    if not isinstance(methods, dict) or not all(isinstance(value, dict) for value in methods.values()):
        raise UserError(f"{path}: 'methods' must give settings by method, got {methods!r}")
    for name in methods:
        if not is_import_path(str(name)):
            _known(f"{path}: methods", name, METHODS)
    recipe.setdefault("recipe", path.stem)
    chosen = [_override(text) for text in overrides]
    method = dict(chosen).get("method", recipe.get("method", Config.method))
    if not isinstance(method, str) or not (method in METHODS or is_import_path(method)):
        raise UserError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    # A run's own config holds every value: the method's presets are in it, and may have been overridden.
    resolved = recipe.pop("resolved", False) is True
    if resolved and method != recipe.get("method"):
        resolved = False
        for section, field in (("loss", "name"), ("sampling", "mix")):  # they were the old method's
            if isinstance(recipe.get(section), dict):
                recipe[section].pop(field, None)
    named = recipe["loss"].get("name") if isinstance(recipe.get("loss"), dict) else None
    if not resolved and named not in (None, method_settings(method)["loss.name"]):
        raise UserError(f"{path}: loss.name {named!r} is not that of method {method!r}; name a method that has it")
    config = _merged(OmegaConf.structured(Config), {**recipe, "method": method}, str(path))
    for key, value in () if resolved else method_settings(method).items():
        config = _merged(config, _nested(key, value), f"method {method}")
    if method in methods:
        config = _merged(config, methods[method], f"{path}: methods.{method}")
    for key, value in chosen:
        config = _merged(config, _nested(key, value), key)
    return _frozen(config)


def dump_config(config: Config) -> str:
    """YAML that :func:`load_config` reads back to the same config."""
    return yaml.safe_dump({"resolved": True, **_plain(asdict(config))}, sort_keys=False, allow_unicode=True)


def _parsed(path: Path) -> dict[str, Any]:
    content = read_yaml(path, "the recipe")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: a recipe holds settings by name, got {type(content).__name__}")
    return content


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"an override is written as key=value, got {text!r}")
    if _is_text(key):
        return key, None if value == "null" else value  # a path such as 1e5 or no is meant as it stands
    try:
        return key, parse_yaml(value)
    except ValueError:
        return key, value  # a text such as a path with a colon


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _merged(config: DictConfig, values: dict[str, Any], where: str) -> DictConfig:
    _refuse_unknown(Config, values, where, "")
    try:
        merged = OmegaConf.merge(config, OmegaConf.create(_prepared(values)))
    except (OmegaConfBaseException, ValueError, TypeError) as error:
        key = getattr(error, "full_key", None) or where
        told = str(error).splitlines()[0]
        raise UserError(f"{where}: {key}: {told}" if key not in where else f"{where}: {told}") from None
    assert isinstance(merged, DictConfig)
    return merged


def _is_text(key: str) -> bool:
    """Whether the field of that name takes text."""
    kind: Any = Config
    for part in key.split("."):
        kind = get_type_hints(kind).get(part) if is_dataclass(kind) else None
    return kind in (str, str | None)


def _prepared(values: Any, key: str = "") -> Any:
    """Texts as they stand, without OmegaConf's ``${…}``; numbers as people write them.

    YAML 1.1 reads 1e-4 as text, because it lacks a point; everyone means the number.
    """
    if isinstance(values, dict):
        return {name: _prepared(value, f"{key}.{name}" if key else str(name)) for name, value in values.items()}
    if isinstance(values, list):
        return [_prepared(value, key) for value in values]
    if not isinstance(values, str):
        return values
    if not _is_text(key) and "e" in values.lower():
        with suppress(ValueError):
            return float(values)
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", values)  # a backslash before ${ is one that escapes, unless doubled


def _refuse_unknown(kind: Any, values: Any, where: str, prefix: str) -> None:
    known = {each.name: each for each in fields(kind)}
    for key, value in values.items():
        full = f"{prefix}{key}"
        _known(where, full, [f"{prefix}{name}" for name in known])
        section = known[key].default_factory
        if is_dataclass(section):
            if not isinstance(value, dict):
                raise UserError(f"{where}: {full} holds settings by name, got {value!r}")
            _refuse_unknown(section, value, where, f"{full}.")
        else:
            _check_value(where, full, value)


def _check_value(where: str, key: str, value: Any) -> None:
    """What no field takes, and OmegaConf would let pass, leave out or fail on."""
    if isinstance(value, dict):
        raise UserError(f"{where}: {key} is a value and has no settings of its own, got {short(value)}")
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict | list):
            raise UserError(f"{where}: {key} holds plain values, got {short(each)}")
        if each == "???":  # OmegaConf's sign for a value that is yet to come
            raise UserError(f"{where}: {key} cannot be '???'")


def _known(where: str, name: str, names: Any) -> None:
    if name not in names:
        near = difflib.get_close_matches(str(name), list(names), 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
        raise UserError(f"{where}: unknown key {str(name)!r}; {hint}")


def _frozen(config: DictConfig) -> Config:
    try:
        made = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise UserError(str(error).splitlines()[0]) from None
    assert isinstance(made, Config)
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
