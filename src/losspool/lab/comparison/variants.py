"""Groups runs into variants: runs that differ only in their seed. Each variant gets a label that identifies it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from losspool.lab.comparison.runs import Run
from losspool.segmentation.base import UserError
from losspool.segmentation.config import METHODS, Config, flat
from losspool.segmentation.data import DATASETS, is_custom
from losspool.segmentation.losses import parse_m
from losspool.segmentation.runs import FREE_TO_CHANGE

_NOT_COMPARED = (FREE_TO_CHANGE | {"seed", "recipe"}) - {"data.root", "model.weights"}
"""Settings that do not make a variant: the seed repeats one, and the others change no number."""

_OF_FILES = {"data.root", "data.exif", "data.intensity"}


@dataclass(frozen=True, eq=False)
class Variant:
    """Runs of one config with different seeds."""

    label: str
    """The method, and the settings that identify the variant among others of its method: ``lmp, p = 1.3``."""
    runs: tuple[Run, ...]
    """By seed."""

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def method(self) -> str:
        return self.config.method


def group_runs(runs: Sequence[Run]) -> tuple[Variant, ...]:
    """Variants in the order of the methods, then of their settings, independent of the folders' names."""
    groups: dict[str, list[Run]] = {}
    for run, label in zip(runs, labels([run.config for run in runs]), strict=True):
        groups.setdefault(label, []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: run.seed)
        for one, other in pairwise(group):
            if one.seed == other.seed:
                raise UserError(f"{one.folder.path} and {other.folder.path} are the same run twice (seed {one.seed})")

    def place(variant: Variant) -> tuple[Any, ...]:
        siblings = [group[0].config for group in groups.values() if group[0].config.method == variant.method]
        values = ((key, settings(variant.config).get(key)) for key in differing_settings(siblings))
        known = [*METHODS, variant.method]  # a method from another package comes last
        return (known.index(variant.method), *(_order(key, value) for key, value in values))

    return tuple(sorted((Variant(label, tuple(group)) for label, group in groups.items()), key=place))


def labels(configs: Sequence[Config]) -> list[str]:
    """The label of each config's variant: its method, and the settings in which configs of that method differ."""
    found = []
    for config in configs:
        keys = differing_settings([each for each in configs if each.method == config.method])
        own = (f"{key.rsplit('.')[-1]} = {format_setting(settings(config).get(key))}" for key in keys)
        found.append(", ".join([config.method, *own]))
    return found


def settings(config: Config) -> dict[str, Any]:
    """The settings that can distinguish variants, by dotted name."""
    found = {key: value for key, value in flat(config).items() if key not in _NOT_COMPARED}
    if config.data.name in DATASETS and not is_custom(config.data.name):
        # A known dataset is the same wherever it is stored; its images have 8 bits, and no EXIF orientation.
        found = {key: value for key, value in found.items() if key not in _OF_FILES}
    if config.model.weights is not None:
        found["model.weights"] = Path(config.model.weights).name  # and so is a file of weights
    return found


def differing_settings(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """The settings in which configs differ, each with its value in every config."""
    rows = [settings(config) for config in configs]
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def format_setting(value: Any) -> str:
    """A setting as written in a recipe; a schedule in words."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return " ".join(map(format_setting, value))
    if isinstance(value, dict) and value.keys() == {"from", "to", "steps"}:
        return f"{format_setting(value['from'])} to {format_setting(value['to'])} in {value['steps']} steps"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {format_setting(each)}" for name, each in value.items()) + "}"
    return str(value)


def _order(key: str, value: Any) -> tuple[int, float, str]:
    """Numbers by size, 5 % before 25 %; other values by name, after none at all."""
    if key == "loss.m" and not isinstance(value, dict):
        return (0, float(parse_m(value)), "")
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value or ""))
