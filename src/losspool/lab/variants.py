"""What is compared: runs that differ in nothing but their seed are one variant, with a label that tells it apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from losspool.lab.records import VALIDATION, Run, Summary
from losspool.lab.selection import Selection
from losspool.segmentation.base import UserError
from losspool.segmentation.config import METHODS, Config
from losspool.segmentation.data import ClassInfo
from losspool.segmentation.losses import parse_m
from losspool.segmentation.runs import FREE_TO_CHANGE, flat

_NOT_COMPARED = (FREE_TO_CHANGE | {"seed", "recipe"}) - {"data.root", "model.weights"}
"""Settings that make no variant: the seed is what a variant is repeated with, the others change no number."""


@dataclass(frozen=True)
class Variant:
    """Runs of one config with different seeds."""

    label: str
    """The method, and what else it takes to tell the variants apart: ``lmp, p = 1.3``."""
    runs: tuple[Run, ...]
    """By seed."""

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def method(self) -> str:
        return self.config.method


@dataclass(frozen=True)
class Comparison:
    """The variants of one experiment, on the same classes, scored in the same way."""

    variants: tuple[Variant, ...]
    baseline: Variant
    source: str
    """``validation``, or the beginning of an evaluation's name."""
    steps: tuple[int, ...]
    """The checkpoints whose mean is a run's score, as in the paper's tables; empty where an evaluation has other ones
    of each run, such as its best: then those are its score."""
    selection: Selection = field(default_factory=Selection)
    failures: tuple[str, ...] = ()
    """Of each run that failed, and so has no score: its variant, seed, and how far it came."""

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """Those that count."""
        every = self.baseline.runs[0].classes
        return tuple(every[place] for place in self.selection.places(every))

    @property
    def others(self) -> tuple[Variant, ...]:
        """All but the baseline."""
        return tuple(variant for variant in self.variants if variant is not self.baseline)

    @property
    def pixels(self) -> list[int]:
        """Of each class, in the images that were scored."""
        run = self.baseline.runs[0]
        pixels = self.summaries(run)[-1].get("pixels")
        if not isinstance(pixels, list) or len(pixels) != len(self.classes):
            raise UserError(f"{run.folder.path}: its scores do not tell the pixels of the classes")
        return list(pixels)

    def summary(self, run: Run, step: int) -> Summary:
        """Of one checkpoint, over what counts."""
        return self.selection.of(run, run.scores(self.source)[step])

    def summaries(self, run: Run) -> list[Summary]:
        """Of the run's checkpoints at :attr:`steps`."""
        return [self.summary(run, step) for step in self.steps or run.scores(self.source)]

    def validations(self, run: Run) -> dict[int, Summary]:
        """Of all images, which training does not count one by one, and of the classes that count."""
        return {step: self.selection.of_classes(run, summary) for step, summary in run.validations.items()}

    def differences(self) -> dict[str, list[Any]]:
        """The settings in which the variants differ, each with its value in every variant."""
        return _differences([variant.config for variant in self.variants])

    def differences_within(self, method: str) -> dict[str, list[Any]]:
        """The settings in which the variants of a method differ."""
        return _differences([variant.config for variant in self.variants if variant.method == method])

    def values(self, setting: str) -> dict[str, Any]:
        """A setting's value in every variant, by label."""
        return {variant.label: flat(asdict(variant.config))[setting] for variant in self.variants}


def compare(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    source: str = VALIDATION,
    steps: Sequence[int] | None = None,
    images: str | None = None,
    classes: Sequence[str] | None = None,
) -> Comparison:
    """Sort runs into variants.

    Args:
        runs: all on the same classes. Those that failed are in no variant, only named.
        baseline: a label; without it the variant of method ``base``, or the first one.
        source: where scores come from, see :meth:`Run.scores`.
        steps: the checkpoints whose mean is a run's score. Without them, of an evaluation all that it has, and of the
            validation those of ``train.keep_steps`` that every run has, or else the last one that every run has.
        images: score only those whose names match this pattern, see :class:`Selection`.
        classes: score only these, by name.
    """
    if not runs:
        raise UserError("there is no run to compare")
    for run in runs:
        if run.classes != runs[0].classes:
            raise UserError(f"{run.folder.path} and {runs[0].folder.path} are of different classes")
    failed, scored = _failed(runs), [run for run in runs if not run.failed]
    failures = tuple(f"{label} (seed {run.seed}, {_reached(run)})" for run, label in failed)
    if not scored:
        raise UserError(f"every run failed: {'; '.join(failures)}")
    variants = tuple(_variants(scored))
    if baseline in {label for _, label in failed} - {variant.label for variant in variants}:
        raise UserError(f"every run of the baseline {baseline!r} failed")
    selection = Selection(images, None if classes is None else tuple(classes))
    selection.places(runs[0].classes)  # a name that is wrong is told before anything is read
    chosen = _steps(scored, source, steps)
    if source != VALIDATION:
        _check_evaluations(scored, source)
    return Comparison(variants, _baseline(variants, baseline), source, chosen, selection, failures)


def labels(configs: Sequence[Config]) -> list[str]:
    """Of each config the label of its variant: the method, and what tells it from others of its method."""
    found = []
    for config in configs:
        differences = _differences([each for each in configs if each.method == config.method])
        own = (f"{key.rsplit('.')[-1]} = {shown(_settings(config).get(key))}" for key in differences)
        found.append(", ".join([config.method, *own]))
    return found


def _failed(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    """Each failed run that no other of the same settings and seed makes up for, with a label."""
    done = [(_settings(run.config), run.seed) for run in runs if not run.failed]
    found: list[tuple[Run, str]] = []
    for run, label in zip(runs, labels([run.config for run in runs]), strict=True):
        own = (_settings(run.config), run.seed)
        if run.failed and own not in done:
            done.append(own)
            found.append((run, label))
    return found


def _reached(run: Run) -> str:
    step = run.description.get("step")
    return f"after step {step}" if isinstance(step, int) else "before its first step"


def _variants(runs: Sequence[Run]) -> list[Variant]:
    """In the order of the methods, and of the settings in which they differ: whatever the folders are called."""
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
        values = ((key, _settings(variant.config).get(key)) for key in _differences(siblings))
        known = [*METHODS, variant.method]  # one that an outside package brings comes last
        return (known.index(variant.method), *(_order(key, value) for key, value in values))

    return sorted((Variant(label, tuple(group)) for label, group in groups.items()), key=place)


def _order(key: str, value: Any) -> tuple[int, float, str]:
    """Numbers by size, 5 % before 25 %, and other things by name."""
    if key == "loss.m":
        return (0, float(parse_m(value)), "")
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _baseline(variants: Sequence[Variant], label: str | None) -> Variant:
    if label is None:
        return next((variant for variant in variants if variant.method == "base"), variants[0])
    for variant in variants:
        if variant.label == label:
            return variant
    raise UserError(f"there is no variant {label!r}; there are {', '.join(repr(each.label) for each in variants)}")


def _check_evaluations(runs: Sequence[Run], source: str) -> None:
    """All of the same kind: a split, a tiling or scales of its own would be taken for a method's gain."""
    files = [run.evaluation_file(source) for run in runs]
    for path in files:
        if _kind(path) != _kind(files[0]):
            raise UserError(f"{path} and {files[0]} were evaluated in different ways; name one more closely")


def _kind(evaluation: Path) -> str:
    """Split and settings: its name without the steps."""
    return evaluation.stem.rpartition("-")[0]


def _steps(runs: Sequence[Run], source: str, wanted: Sequence[int] | None) -> tuple[int, ...]:
    scored = [set(run.scores(source)) for run in runs]
    common = set.intersection(*scored)
    if wanted is not None:
        for run, steps in zip(runs, scored, strict=True):
            for step in wanted:
                if step not in steps:
                    raise UserError(f"{run.folder.path}: step {step} was not scored; there are {sorted(steps)}")
        return tuple(dict.fromkeys(wanted))
    if source != VALIDATION:
        return tuple(sorted(common)) if all(steps == common for steps in scored) else ()
    if not common:
        raise UserError("the runs have no scored step in common")
    kept = sorted(common.intersection(*(run.config.train.keep_steps for run in runs)))
    return tuple(kept) or (max(common),)


def _settings(config: Config) -> dict[str, Any]:
    """What may tell a variant from another one."""
    found = {key: value for key, value in flat(asdict(config)).items() if key not in _NOT_COMPARED}
    if config.data.name != "folder":
        del found["data.root"]  # a known data set is the same wherever it lies
    if config.model.weights is not None:
        found["model.weights"] = Path(config.model.weights).name  # and so is a file of weights
    return found


def _differences(configs: Sequence[Config]) -> dict[str, list[Any]]:
    settings = [_settings(config) for config in configs]
    columns = {
        key: [each.get(key) for each in settings] for key in dict.fromkeys(key for each in settings for key in each)
    }
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def shown(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return " ".join(map(shown, value))
    return str(value)
