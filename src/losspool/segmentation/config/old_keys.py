"""Settings that had another name in earlier versions, or none."""

from __future__ import annotations

from reprlib import repr
from typing import Any, NamedTuple

from losspool.segmentation.base import UserError


class OldKey(NamedTuple):
    """A setting of true or false that another one has replaced."""

    section: str
    old: str
    new: str
    values: dict[bool | None, Any]
    """What each old value means. None, if it is there, was the default."""

    def renamed(self, stated: dict[Any, Any], where: str) -> dict[Any, Any]:
        """Return the settings of the section under the new name."""
        if self.old not in stated:
            return stated
        rest = {key: value for key, value in stated.items() if key != self.old}
        value, old, new = stated[self.old], f"{self.section}.{self.old}", f"{self.section}.{self.new}"
        if not (isinstance(value, bool) or (value is None and None in self.values)):
            raise UserError(f"{where}{old} must be true or false, got {repr(value)}")
        if self.new in rest:
            raise UserError(f"{where}{old} is the old name of {new}; state only {new}")
        return {**rest, self.new: self.values[value]}

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the old key."""
        kinds = [{"type": "boolean"}, *([{"type": "null"}] if None in self.values else [])]
        meaning = ", ".join(f"{str(key).lower()} is {value}" for key, value in self.values.items() if key is not None)
        return {
            "anyOf": kinds,
            "default": None if None in self.values else False,
            "deprecated": True,
            "description": f"Old name of {self.new}: {meaning}.",
        }


OLD_KEYS = (
    OldKey("model", "frozen_bn", "batch_norm", {None: None, True: "frozen", False: "train"}),
    OldKey("train", "tensorboard", "trackers", {True: ["tensorboard"], False: []}),
)

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
    for key in OLD_KEYS:
        if isinstance(stated.get(key.section), dict):
            renamed[key.section] = key.renamed(stated[key.section], where)
    if isinstance(stated.get("methods"), dict):
        renamed["methods"] = {name: with_new_keys(layer, where) for name, layer in stated["methods"].items()}
    return renamed


def overrides_with_new_keys(overrides: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return overrides, dotted keys and their values, with their old keys renamed."""
    stated = dict(overrides)
    for key in OLD_KEYS:
        if f"{key.section}.{key.old}" in stated:
            both = {name: f"{key.section}.{name}" for name in (key.old, key.new)}
            section = key.renamed({name: stated[dotted] for name, dotted in both.items() if dotted in stated}, "")
            del stated[both[key.old]]
            stated |= {both[name]: value for name, value in section.items()}
    return [(key, with_new_keys({key: value})[key]) for key, value in stated.items()]
