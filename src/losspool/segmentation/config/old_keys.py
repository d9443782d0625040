"""Settings that had another name in earlier versions, or none."""

from __future__ import annotations

from reprlib import repr
from typing import Any

from losspool.segmentation.base import UserError

FROZEN_BN: dict[str, Any] = {
    "anyOf": [{"type": "boolean"}, {"type": "null"}],
    "default": None,
    "deprecated": True,
    "description": "Old name of batch_norm: true is frozen, false is train.",
}
"""JSON schema of ``model.frozen_bn``."""

READING = {"exif": "ignore", "intensity": "full"}
"""How the images of a run were read before the run's config stated it."""


def with_new_keys(stated: Any, where: str = "") -> Any:
    """Return a recipe's content, or a part of it, with its old keys renamed. ``where`` it stands starts a message.

    A run's config keeps its meaning: it is completed with what was not a setting when it was written.
    """
    if not isinstance(stated, dict):
        return stated
    renamed = dict(stated)
    if stated.get("resolved") is True and isinstance(stated.get("data"), dict):
        renamed["data"] = {**READING, **stated["data"]}
    if isinstance(stated.get("model"), dict):
        renamed["model"] = _model(stated["model"], where)
    if isinstance(stated.get("methods"), dict):
        renamed["methods"] = {name: with_new_keys(layer, where) for name, layer in stated["methods"].items()}
    return renamed


def overrides_with_new_keys(overrides: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return overrides, dotted keys and their values, with their old keys renamed."""
    stated = dict(overrides)
    if "model.frozen_bn" in stated:
        both = ("frozen_bn", "batch_norm")
        section = _model({key: stated[f"model.{key}"] for key in both if f"model.{key}" in stated})
        stated.pop("model.frozen_bn")
        stated |= {f"model.{key}": value for key, value in section.items()}
    return [(key, with_new_keys({key: value})[key]) for key, value in stated.items()]


def _model(section: dict[Any, Any], where: str = "") -> dict[Any, Any]:
    if "frozen_bn" not in section:
        return section
    rest = {key: value for key, value in section.items() if key != "frozen_bn"}
    frozen = section["frozen_bn"]
    if frozen is not None and not isinstance(frozen, bool):
        raise UserError(f"{where}model.frozen_bn must be true or false, got {repr(frozen)}")
    if "batch_norm" in rest:
        raise UserError(f"{where}model.frozen_bn is the old name of model.batch_norm; state only model.batch_norm")
    return {**rest, "batch_norm": {None: None, True: "frozen", False: "train"}[frozen]}
