"""``losspool evaluate``: prints the scores of a run as tables."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from losspool.segmentation.base import counted, number_tables, plain
from losspool.segmentation.prediction.evaluation import Evaluation, evaluate_run, write_evaluation
from losspool.segmentation.prediction.metrics import METRICS, shares_of_labels
from losspool.segmentation.prediction.trained_run import TrainedRun, with_overrides

_NONE = "–"


def report_evaluation(
    path: Path,
    checkpoint: str,
    split: str | None,
    *,
    confusion: bool = False,
    trusted: Collection[str] = (),
    **inference: Any,
) -> None:
    """``losspool evaluate``: score checkpoints of a run, print the scores and write them to its folder.

    Args:
        path: the run's folder.
        checkpoint: ``last``, ``best`` or steps such as ``500,1000``.
        split: the split to score (default: validation).
        confusion: also print the confusion matrix.
        trusted: import paths of code that may run.
        inference: tiling, scales and flip; see :func:`with_overrides`.
    """
    run = TrainedRun.open(path, trusted)
    settings, steps = with_overrides(run.config.evaluate, **inference), run.steps(checkpoint)
    evaluation = evaluate_run(run, steps, run.split(split), settings)
    output = Console(highlight=False)
    try:
        output.print(plain(heading(evaluation)), markup=False, soft_wrap=True)
        kinds = [score_tables, metric_tables, *([confusion_tables] if confusion else []), look_tables]
        for table in (table for kind in kinds for table in kind(evaluation, output.width)):
            output.print(table)
            output.print()
    finally:  # print first, in case the folder is read-only; write even if stdout is closed
        written = write_evaluation(run.folder, evaluation)
    output.print(plain(f"written: {written}"), markup=False, soft_wrap=True)


def score_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """IoU in percent: one row per class and one for the mean, one column per checkpoint, and mean ± std if several."""
    several = len(evaluation.scores) > 1
    values = zip(*(summary["iou"] for summary in evaluation.summaries), strict=True)
    rows = [
        (name, [*map(_percent, row), *([str(spread or _NONE)] if several else [])])
        for name, row, spread in zip(evaluation.classes, values, evaluation.class_spreads(), strict=True)
    ]
    means = [_percent(summary["miou"]) for summary in evaluation.summaries]
    rows.append(("mean", [*means, *([str(evaluation.spread())] if several else [])]))
    columns = [*_steps(evaluation), *(["mean ± std"] if several else [])]
    return number_tables("class", columns, rows, width, total=True)


def metric_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """The other scores in percent: one row per class and one for the mean; the mean over checkpoints if several."""
    found = [scores.metrics() for scores in evaluation.scores.values()]

    def row(pick: Callable[[dict[str, Any]], float | None]) -> list[str]:
        columns = [[value for each in found if (value := pick(each[name])) is not None] for name in found[0]]
        return [_percent(float(np.mean(values)) if values else None) for values in columns]

    rows = [
        (name, row(lambda metric, place=place: metric["classes"][place]))  # type: ignore[misc]
        for place, name in enumerate(evaluation.classes)
    ]
    rows.append(("mean", row(lambda metric: metric["mean"])))
    corner = "class" if len(found) == 1 else "mean over checkpoints"
    return number_tables(corner, [METRICS[name] for name in found[0]], rows, width, total=True)


def confusion_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """What the pixels of each class were predicted as, in percent of them, over all checkpoints."""
    matrix = sum(scores.matrix for scores in evaluation.scores.values())
    rows = [
        (name, [_NONE if np.isnan(share) else f"{100 * share:.1f}" for share in shares])
        for name, shares in zip(evaluation.classes, shares_of_labels(np.asarray(matrix)), strict=True)
    ]
    return number_tables("label \\ prediction", evaluation.classes, rows, width)


def look_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """The recall of each look's pixels, for data that have looks; else none."""
    recalls = [recall for summary in evaluation.summaries if (recall := summary.get("recall_per_look")) is not None]
    if not recalls:
        return []
    rows = [(key, [_percent(recall[key]) for recall in recalls]) for key in recalls[0]]
    return number_tables("recall per look", _steps(evaluation), rows, width)


def _steps(evaluation: Evaluation) -> list[str]:
    return [f"step {step}" for step in evaluation.scores]


def heading(evaluation: Evaluation) -> str:
    """One line with the dataset, the number of images and the settings."""
    settings = evaluation.settings
    passes = f", scales {', '.join(map(str, settings.scales))}" if settings.scales != (1.0,) else ""
    passes += ", flip" if settings.flip else ""
    skipped = max(len(scores.broken or ()) for scores in evaluation.scores.values())
    images = counted(evaluation.images, "image") + (f" ({skipped} of them skipped)" if skipped else "")
    return f"{evaluation.dataset}: {images}, tiling {settings.tiling}{passes}, IoU in %"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.2f}"
