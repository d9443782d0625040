"""A comparison: which variants, which checkpoints, which images and classes are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from losspool.lab.comparison.bootstrap import strata
from losspool.lab.comparison.runs import VALIDATION, ImageCounts, Run, Summary
from losspool.lab.comparison.variants import Variant, differing_settings, group_runs, labels, settings
from losspool.segmentation.base import UserError
from losspool.segmentation.data import ClassInfo
from losspool.segmentation.prediction import mean_of_present


@dataclass(frozen=True)
class Selection:
    """The images and classes that are scored; by default all."""

    images: str | None = None
    """A shell pattern of names such as ``Seq05VD*``, case-sensitive."""
    classes: tuple[str, ...] | None = None
    """Names. The mean IoU is over these; pixels of other classes still count as wrong where one is predicted."""
    blocks: int | None = None
    """How many neighbouring images the intervals over images draw together; by default as the data say."""

    @property
    def everything(self) -> bool:
        return self.images is None and self.classes is None

    def places(self, classes: Sequence[ClassInfo]) -> list[int]:
        """Indices of the selected classes."""
        names = [info.name for info in classes]
        for name in self.classes or ():
            if name not in names:
                raise UserError(f"unknown class {name!r}; choose from {', '.join(map(repr, names))}")
        return [place for place, name in enumerate(names) if self.classes is None or name in self.classes]

    def of(self, run: Run, summary: Summary) -> Summary:
        """A checkpoint's scores on the selected images and classes."""
        if self.images is not None:
            summary = self._of_images(run, summary, self.images)
        if self.blocks is not None:
            summary = self._in_blocks(run, summary, self.blocks)
        return self.of_classes(run, summary)

    def of_classes(self, run: Run, summary: Summary) -> Summary:
        """A checkpoint's scores on all images and the selected classes."""
        if self.classes is None:
            return summary
        places = self.places(run.classes)
        found = {**summary, "iou": [summary["iou"][place] for place in places]}
        ious = np.array([np.nan if iou is None else iou for iou in found["iou"]])
        if np.isnan(ious).all():
            raise UserError(f"{run.folder.path}: none of the classes {', '.join(self.classes)} occurs")
        found["miou"] = mean_of_present(ious)
        if "pixels" in summary:
            found["pixels"] = [summary["pixels"][place] for place in places]
        if "per_image" in summary:
            found["per_image"] = summary["per_image"].only_classes(places)
        return found

    @staticmethod
    def _counts(run: Run, summary: Summary) -> ImageCounts:
        counts = summary.get("per_image")
        if not isinstance(counts, ImageCounts):
            path = run.folder.path
            raise UserError(f"{path}: its scores are not of single images; name an evaluation that counted them")
        return counts

    def _in_blocks(self, run: Run, summary: Summary, blocks: int) -> Summary:
        counts = self._counts(run, summary)
        if counts.groups is not None:
            raise UserError(f"{run.folder.path}: its images have groups, which are drawn whole; leave --blocks out")
        found = replace(counts, block=blocks)
        if blocks > 1 and all(len(block) == 1 for stratum in strata(found) for block in stratum):
            name = counts.names[0]
            raise UserError(
                f"{run.folder.path}: no names of images are equal up to their last number, such as {name!r}"
            )
        return {**summary, "per_image": found}

    def _of_images(self, run: Run, summary: Summary, pattern: str) -> Summary:
        path, counts = run.folder.path, self._counts(run, summary)
        found = counts.only(pattern)
        if not found.names:
            raise UserError(f"{path}: no image is called {pattern!r}; an example of a name is {counts.names[0]!r}")
        if not found.counts.any():
            raise UserError(f"{path}: no pixel of the images {pattern!r} is labelled")
        return {"step": summary["step"], **found.summary(), "per_image": found}


@dataclass(frozen=True)
class Comparison:
    """Variants of one experiment, on the same classes, scored in the same way."""

    variants: tuple[Variant, ...]
    baseline: Variant
    source: str
    """``validation``, or the beginning of an evaluation's name."""
    steps: tuple[int, ...]
    """The checkpoints whose mean is a run's score, as in the paper's tables. Empty where an evaluation has different
    checkpoints of each run, such as its best: then these are its score."""
    selection: Selection = field(default_factory=Selection)
    failures: tuple[str, ...] = ()
    """The variant, seed and last step of each failed run. Failed runs have no score."""

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The selected classes."""
        every = self.baseline.runs[0].classes
        return tuple(every[place] for place in self.selection.places(every))

    @property
    def others(self) -> tuple[Variant, ...]:
        """All variants but the baseline."""
        return tuple(variant for variant in self.variants if variant is not self.baseline)

    @property
    def rivals(self) -> tuple[Variant, ...]:
        """The same, and at least one."""
        if not self.others:
            raise UserError(f"all runs are of one variant, {self.baseline.label}: there is nothing to compare it with")
        return self.others

    @property
    def pixels(self) -> list[int]:
        """Labelled pixels of each class in the scored images."""
        run = self.baseline.runs[0]
        pixels = self.summaries(run)[-1].get("pixels")
        if not isinstance(pixels, list) or len(pixels) != len(self.classes):
            raise UserError(f"{run.folder.path}: its scores do not have the pixels of the classes")
        return list(pixels)

    def summary(self, run: Run, step: int) -> Summary:
        """A checkpoint's scores on the selection."""
        return self.selection.of(run, run.scores(self.source)[step])

    def summaries(self, run: Run) -> list[Summary]:
        """Scores of the run's checkpoints at :attr:`steps`."""
        return [self.summary(run, step) for step in self.steps or run.scores(self.source)]

    def validations(self, run: Run) -> dict[int, Summary]:
        """Validations during training, by step, on the selected classes. Training does not count single images."""
        return {step: self.selection.of_classes(run, summary) for step, summary in run.validations.items()}

    def differences(self, method: str | None = None) -> dict[str, list[Any]]:
        """The settings in which the variants differ, or those of one method, with the value in each variant."""
        return differing_settings([each.config for each in self.variants if method in (None, each.method)])


def compare(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    source: str = VALIDATION,
    steps: Sequence[int] | None = None,
    images: str | None = None,
    classes: Sequence[str] | None = None,
    blocks: int | None = None,
) -> Comparison:
    """Group runs into variants and decide how they are scored.

    Args:
        runs: all on the same classes. Failed ones join no variant and are listed as failures.
        baseline: a label (default: the variant of method ``base``, or the first variant).
        source: where scores come from, see :meth:`Run.scores`.
        steps: the checkpoints whose mean is a run's score. By default, all that an evaluation has; of validations the
            ``train.keep_steps`` that all runs have, or the last step that all runs have.
        images: score only images whose names match this pattern, see :class:`Selection`.
        classes: score only these classes, by name.
        blocks: how many neighbouring images the intervals over images draw together.
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
    variants = group_runs(scored)
    if baseline in {label for _, label in failed} - {variant.label for variant in variants}:
        raise UserError(f"every run of the baseline {baseline!r} failed")
    if blocks is not None and blocks < 1:
        raise UserError(f"--blocks is a number of neighbouring images and must be at least 1, got {blocks}")
    selection = Selection(images, None if classes is None else tuple(classes), blocks)
    selection.places(runs[0].classes)  # reports an unknown class before any evaluation is read
    chosen = _steps(scored, source, steps)
    if source != VALIDATION:
        _check_evaluations(scored, source)
    return Comparison(variants, _baseline(variants, baseline), source, chosen, selection, failures)


def _failed(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    """Each failed run with its label, unless another run of the same settings and seed replaces it."""
    done = [(settings(run.config), run.seed) for run in runs if not run.failed]
    found: list[tuple[Run, str]] = []
    for run, label in zip(runs, labels([run.config for run in runs]), strict=True):
        own = (settings(run.config), run.seed)
        if run.failed and own not in done:
            done.append(own)
            found.append((run, label))
    return found


def _reached(run: Run) -> str:
    step = run.description.get("step")
    return f"after step {step}" if isinstance(step, int) else "before its first step"


def _baseline(variants: Sequence[Variant], label: str | None) -> Variant:
    if label is None:
        return next((variant for variant in variants if variant.method == "base"), variants[0])
    for variant in variants:
        if variant.label == label:
            return variant
    raise UserError(f"unknown variant {label!r}; choose from {', '.join(repr(each.label) for each in variants)}")


def _check_evaluations(runs: Sequence[Run], source: str) -> None:
    """Require one split, tiling and set of scales: otherwise their effect would look like a method's gain."""
    files = [run.evaluation_file(source) for run in runs]
    for path in files:
        if _kind(path) != _kind(files[0]):
            raise UserError(f"{path} and {files[0]} were evaluated in different ways; name one more closely")


def _kind(evaluation: Path) -> str:
    """Split and settings: the file's name without the steps."""
    return evaluation.stem.rpartition("-")[0]


def _steps(runs: Sequence[Run], source: str, wanted: Sequence[int] | None) -> tuple[int, ...]:
    scored = [set(run.scores(source)) for run in runs]
    common = set.intersection(*scored)
    if wanted is not None:
        for run, steps in zip(runs, scored, strict=True):
            for step in wanted:
                if step not in steps:
                    raise UserError(f"{run.folder.path}: step {step} was not scored; choose from {sorted(steps)}")
        return tuple(dict.fromkeys(wanted))
    if source != VALIDATION:
        return tuple(sorted(common)) if all(steps == common for steps in scored) else ()
    if not common:
        raise UserError("the runs have no scored step in common")
    kept = sorted(common.intersection(*(run.config.train.keep_steps for run in runs)))
    return tuple(kept) or (max(common),)
