"""Means, spreads and paired differences: the source of every number in tables, figures and the report."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from losspool.lab.comparison.bootstrap import ImageIntervals, Interval, image_intervals
from losspool.lab.comparison.comparison import Comparison, compare
from losspool.lab.comparison.runs import VALIDATION, ImageCounts, Run, find_runs
from losspool.lab.comparison.variants import Variant
from losspool.segmentation.base import UserError, say
from losspool.segmentation.prediction import METRICS, Spread, class_metrics, mean_of_present, shares_of_labels

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A paired difference over seeds."""

    mean: float
    interval: Interval | None
    """Student's interval of the mean; None with fewer than two pairs."""
    pairs: int
    p_value: float | None = None
    """Of the two-sided t-test that the mean is 0; None with fewer than two pairs, and where all pairs differ alike."""

    @classmethod
    def of(cls, ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
        """From values by seed; None if no seed is shared."""
        pairs = [(ours[seed], theirs[seed]) for seed in sorted(set(ours) & set(theirs))]
        if not pairs:
            return None
        mean = _mean([one - other for one, other in pairs])
        if len(pairs) < 2:
            return cls(mean, None, len(pairs))
        with warnings.catch_warnings():  # scipy warns where all differences are equal: the interval is a point then
            warnings.simplefilter("ignore", RuntimeWarning)
            test = ttest_rel(*zip(*pairs, strict=True))
            low, high = test.confidence_interval(CONFIDENCE)
        p_value = None if np.isnan(test.pvalue) or low == high else float(test.pvalue)
        return cls(mean, Interval(float(low), float(high)), len(pairs), p_value)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Numbers of a comparison. All scores lie between 0 and 1.

    Make one and share it: intervals over images take seconds, and each is computed once per object.
    """

    comparison: Comparison

    def by_seed(self, variant: Variant, step: int | None = None) -> dict[int, float]:
        """The mIoU of each run at one checkpoint, or its mean over the comparison's checkpoints."""
        if step is not None:
            return {run.seed: self.comparison.summary(run, step)["miou"] for run in variant.runs}
        summaries = {run.seed: self.comparison.summaries(run) for run in variant.runs}
        return {seed: _mean([each["miou"] for each in own]) for seed, own in summaries.items()}

    def classes_by_seed(self, variant: Variant) -> dict[int, list[float | None]]:
        """The same for each class; None for a class that no checkpoint has a score for."""
        found = {}
        for run in variant.runs:
            columns = zip(*(summary["iou"] for summary in self.comparison.summaries(run)), strict=True)
            found[run.seed] = [_mean(values) if (values := _present(column)) else None for column in columns]
        return found

    def at_step(self, variant: Variant, step: int) -> float:
        """The mIoU at one checkpoint, mean over seeds."""
        return _mean(list(self.by_seed(variant, step).values()))

    def score(self, variant: Variant) -> Spread:
        """Mean and spread of the mIoU: over seeds, or with one seed over the checkpoints as in the paper."""
        if len(variant.runs) > 1:
            return Spread.of(list(self.by_seed(variant).values()))
        return Spread.of([summary["miou"] for summary in self.comparison.summaries(variant.runs[0])])

    def class_scores(self, variant: Variant) -> list[Spread | None]:
        """The same for each class."""
        if len(variant.runs) > 1:
            rows = list(self.classes_by_seed(variant).values())
        else:
            rows = [summary["iou"] for summary in self.comparison.summaries(variant.runs[0])]
        return _spreads(rows)

    def best(self, variants: Sequence[Variant]) -> Variant:
        """The variant with the highest mIoU; among equals the first."""
        return max(variants, key=lambda variant: self.score(variant).mean)

    def gain(self, variant: Variant) -> Difference | None:
        """The gain in mIoU over the baseline with the same seeds."""
        return Difference.of(self.by_seed(variant), self.by_seed(self.comparison.baseline))

    def gain_by_seed(self, variant: Variant, step: int | None = None) -> dict[int, float]:
        """The same of each seed that both have."""
        ours, theirs = self.by_seed(variant, step), self.by_seed(self.comparison.baseline, step)
        return {seed: ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))}

    def class_gains(self, variant: Variant) -> list[Difference | None]:
        """The same for each class."""
        ours, theirs = self.classes_by_seed(variant), self.classes_by_seed(self.comparison.baseline)

        def column(rows: dict[int, list[float | None]], index: int) -> dict[int, float]:
            return {seed: score for seed, row in rows.items() if (score := row[index]) is not None}

        places = range(len(self.comparison.classes))
        return [Difference.of(column(ours, index), column(theirs, index)) for index in places]

    def image_intervals(self, variant: Variant) -> ImageIntervals | None:
        """Intervals of the same gains over images; None where :meth:`no_image_intervals` says why."""
        found = self._bootstrapped(variant)
        return None if isinstance(found, str) else found

    def no_image_intervals(self, variant: Variant) -> str | None:
        """Why there are no intervals over images; None if there are."""
        found = self._bootstrapped(variant)
        return found if isinstance(found, str) else None

    def _bootstrapped(self, variant: Variant) -> ImageIntervals | str:
        if variant.label not in self._image_intervals:
            self._image_intervals[variant.label] = self._bootstrap(variant)
        return self._image_intervals[variant.label]

    @cached_property
    def _image_intervals(self) -> dict[str, ImageIntervals | str]:
        """Intervals computed so far, by label, or why there are none."""
        return {}

    def _bootstrap(self, variant: Variant) -> ImageIntervals | str:
        if self.comparison.source == VALIDATION:
            return "the validation in training does not count single images; name an evaluation with --scores"
        base = {run.seed: run for run in self.comparison.baseline.runs}
        shared = [run for run in variant.runs if run.seed in base]
        ours = [self.image_counts(run) for run in shared]
        theirs = [self.image_counts(base[run.seed]) for run in shared]
        same = (counts.labelled_as(ours[0][0]) for run in (*ours, *theirs) for counts in run)
        if not shared or not all(ours) or not all(theirs) or not all(same):
            return "the baseline has no run of the same seeds with counts of the same images"
        return image_intervals(ours, theirs, CONFIDENCE)

    def image_counts(self, run: Run) -> list[ImageCounts]:
        """Counts of the run's checkpoints; empty if one of them has none."""
        summaries = self.comparison.summaries(run)
        counted = all("per_image" in summary for summary in summaries)
        return [summary["per_image"] for summary in summaries] if counted else []

    def metrics(self, variant: Variant) -> dict[str, list[Spread | None]]:
        """Scores other than the IoU, by keys of ``METRICS``: of each class, then their mean. Spreads as for the IoU.

        Empty unless all runs counted single images.
        """
        counted = {run.seed: self.image_counts(run) for run in variant.runs}
        if not all(counted.values()):
            return {}
        rows = [[_metric_rows(counts) for counts in run] for run in counted.values()]
        names = [name for name in METRICS if all(name in each for run in rows for each in run)]
        # Over seeds, each of them a mean over its checkpoints; with one seed over its checkpoints.
        units = rows if len(rows) > 1 else [[each] for each in rows[0]]
        return {name: _spreads([_column_means([each[name] for each in unit]) for unit in units]) for name in names}

    def confusion(self, variant: Variant) -> NDArray[np.float64] | None:
        """(C, C): what each class's pixels were predicted as, as shares; over all seeds and checkpoints.

        None unless the scores are of everything, and all of them have the matrix.
        """
        summaries = [summary for run in variant.runs for summary in self.comparison.summaries(run)]
        if not self.comparison.selection.everything or not all("confusion" in summary for summary in summaries):
            return None
        return shares_of_labels(np.sum([summary["confusion"] for summary in summaries], axis=0))

    def curve(self, variant: Variant) -> dict[int, float]:
        """The mIoU of validation during training, mean over seeds, at the steps that all seeds have."""
        curves = [self.comparison.validations(run) for run in variant.runs]
        steps = sorted(set.intersection(*map(set, curves)))
        return {step: _mean([curve[step]["miou"] for curve in curves]) for step in steps}

    def first_step_at(self, variant: Variant, level: float) -> int | None:
        """The first validation whose mIoU, mean over seeds, reaches ``level``."""
        return next((step for step, miou in self.curve(variant).items() if miou >= level), None)

    def recall(self, variant: Variant) -> dict[str, float | None]:
        """Recall per look, mean over seeds and checkpoints; empty where the scores have no ``recall_per_look``."""
        found: dict[str, list[float]] = {}
        for run in variant.runs:
            for summary in self.comparison.summaries(run):
                for look, recall in (summary.get("recall_per_look") or {}).items():
                    found.setdefault(look, []).extend(_present([recall]))
        return {look: _mean(values) if values else None for look, values in found.items()}


def read_statistics(
    folders: Sequence[Path],
    *,
    baseline: str | None = None,
    scores: str | None = None,
    steps: str | None = None,
    images: str | None = None,
    classes: str | None = None,
    blocks: int | None = None,
) -> Statistics:
    """Compare all runs in these folders, with the choices as the command line takes them; report failed runs."""
    try:
        wanted = [int(step) for step in steps.split(",")] if steps else None
    except ValueError:
        raise UserError(f"--steps must be whole numbers such as 800,900,1000, got {steps!r}") from None
    chosen = None if classes is None else [name.strip() for name in classes.split(",")]
    comparison = compare(
        find_runs(folders, scores or VALIDATION),
        baseline=baseline,
        source=scores or VALIDATION,
        steps=wanted,
        images=images,
        classes=chosen,
        blocks=blocks,
    )
    for failure in comparison.failures:
        say(f"left out, because it failed: {failure}")
    return Statistics(comparison)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of several tests by Holm's method (1979), in their order."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min((len(p_values) - rank) * p_values[place], 1.0))
        corrected[place] = largest
    return corrected


def _metric_rows(counts: ImageCounts) -> dict[str, list[float]]:
    """Scores of one checkpoint by name: of each class, then their mean; NaN where there is none."""
    found = class_metrics(counts.counts, counts.regions)
    return {name: [*scores.tolist(), mean_of_present(scores)] for name, scores in found.items()}


def _column_means(rows: Sequence[Sequence[float]]) -> list[float | None]:
    columns = ([value for value in column if not np.isnan(value)] for column in zip(*rows, strict=True))
    return [_mean(values) if values else None for values in columns]


def _spreads(rows: Sequence[Sequence[float | None]]) -> list[Spread | None]:
    return [Spread.of(values) if (values := _present(column)) else None for column in zip(*rows, strict=True)]


def _present(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
