"""Means, spreads and paired differences: every number of the tables and of the report comes from here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from losspool.lab.bootstrap import ImageIntervals, image_intervals
from losspool.lab.image_counts import ImageCounts, same_images
from losspool.lab.records import Run
from losspool.lab.variants import Comparison, Variant
from losspool.segmentation.prediction import Spread

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A paired difference over seeds, with Student's interval for its mean."""

    mean: float
    low: float | None
    """None with fewer than two pairs."""
    high: float | None
    pairs: int

    @classmethod
    def of(cls, ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
        """Both by seed; None if they share none."""
        gains = [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]
        if not gains:
            return None
        mean = float(np.mean(gains))
        if len(gains) < 2:
            return cls(mean, None, None, len(gains))
        error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
        reach = float(student.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * error
        return cls(mean, mean - reach, mean + reach, len(gains))


@dataclass(frozen=True)
class Statistics:
    """Numbers of a comparison. All scores lie between 0 and 1."""

    comparison: Comparison

    def run_score(self, run: Run) -> float:
        """The mIoU, mean over the comparison's checkpoints."""
        return _mean([summary["miou"] for summary in self.comparison.summaries(run)])

    def run_class_scores(self, run: Run) -> list[float | None]:
        """Of each class the mean over the checkpoints; None for one that occurs in none."""
        columns = zip(*(summary["iou"] for summary in self.comparison.summaries(run)), strict=True)
        return [
            _mean([value for value in column if value is not None]) if any(v is not None for v in column) else None
            for column in columns
        ]

    def by_seed(self, variant: Variant) -> dict[int, float]:
        return {run.seed: self.run_score(run) for run in variant.runs}

    def class_by_seed(self, variant: Variant, index: int) -> dict[int, float]:
        scores = {run.seed: self.run_class_scores(run)[index] for run in variant.runs}
        return {seed: score for seed, score in scores.items() if score is not None}

    def at_step(self, variant: Variant, step: int) -> float:
        """The mIoU, mean over seeds."""
        return _mean([self.comparison.summary(run, step)["miou"] for run in variant.runs])

    def score(self, variant: Variant) -> Spread:
        """The mIoU's mean and its spread: over seeds, or with one seed over the checkpoints as in the paper."""
        if len(variant.runs) > 1:
            return Spread.of(list(self.by_seed(variant).values()))
        return Spread.of([summary["miou"] for summary in self.comparison.summaries(variant.runs[0])])

    def class_scores(self, variant: Variant) -> list[Spread | None]:
        """The same of each class."""
        if len(variant.runs) > 1:
            rows = [self.run_class_scores(run) for run in variant.runs]
        else:
            rows = [summary["iou"] for summary in self.comparison.summaries(variant.runs[0])]
        columns = ([value for value in column if value is not None] for column in zip(*rows, strict=True))
        return [Spread.of(values) if values else None for values in columns]

    def gain(self, variant: Variant) -> Difference | None:
        """In mIoU, over the baseline with the same seeds."""
        return Difference.of(self.by_seed(variant), self.by_seed(self.comparison.baseline))

    def class_gains(self, variant: Variant) -> list[Difference | None]:
        """The same of each class."""
        base = self.comparison.baseline
        return [
            Difference.of(self.class_by_seed(variant, index), self.class_by_seed(base, index))
            for index in range(len(self.comparison.classes))
        ]

    def image_intervals(self, variant: Variant) -> ImageIntervals | None:
        """Of the same gains, over images; None where these were not counted one by one, or not the same ones."""
        base = {run.seed: run for run in self.comparison.baseline.runs}
        shared = [run for run in variant.runs if run.seed in base]
        ours = [self._image_counts(run) for run in shared]
        theirs = [self._image_counts(base[run.seed]) for run in shared]
        if not shared or not all(ours) or not all(theirs):
            return None
        same = same_images([counts for run in (*ours, *theirs) for counts in run])
        return image_intervals(ours, theirs, CONFIDENCE) if same else None

    def _image_counts(self, run: Run) -> list[ImageCounts]:
        """Of the run's checkpoints; empty if one of them has none."""
        summaries = self.comparison.summaries(run)
        counted = all("per_image" in summary for summary in summaries)
        return [summary["per_image"] for summary in summaries] if counted else []

    def present_classes(self) -> int:
        """How many classes have an IoU in the baseline: the C of the paper's question."""
        return sum(score is not None for score in self.class_scores(self.comparison.baseline))

    def curve(self, variant: Variant) -> dict[int, float]:
        """The mIoU of validation through training, mean over seeds, at the steps that all of them have."""
        curves = [self.comparison.validations(run) for run in variant.runs]
        steps = sorted(set.intersection(*map(set, curves)))
        return {step: _mean([curve[step]["miou"] for curve in curves]) for step in steps}

    def first_step_at(self, variant: Variant, level: float) -> int | None:
        """The first validation whose mIoU, mean over seeds, reaches ``level``."""
        return next((step for step, miou in self.curve(variant).items() if miou >= level), None)

    def recall(self, variant: Variant) -> dict[str, float | None]:
        """Of each look of generated scenes: the share of its pixels found, mean over seeds and checkpoints; else {}."""
        found: dict[str, list[float]] = {}
        for run in variant.runs:
            for summary in self.comparison.summaries(run):
                for look, recall in (summary.get("recall_per_look") or {}).items():
                    found.setdefault(look, []).extend([] if recall is None else [recall])
        return {look: _mean(values) if values else None for look, values in found.items()}


def needed_per_class(gain: float, classes: int, worst: int) -> float:
    """By how much each of the ``worst`` classes would have to improve for the mean over all to gain as much."""
    return gain * classes / worst


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
