"""Where a method helps: its gain in each class beside how rare, how thin and how hard the class is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from losspool.lab.comparison import Run, Statistics
from losspool.lab.tables.notes import score_source
from losspool.lab.tables.table import Cell, Table, percent, points, text
from losspool.segmentation.base import counted
from losspool.segmentation.prediction import BOUNDARY_RATIO, INTERIOR_MARGIN, iou_of_counts, none_if_nan, ratio

Scores = NDArray[np.float64]
_FEWEST = 5
"""Classes for a rank correlation."""


def gains_table(statistics: Statistics) -> Table | None:
    """A row per class: its share of the pixels and how much of it lies near its outline; the gain there and inside.

    Of the best variant, with the seeds that it shares with the baseline.
    """
    comparison = statistics.comparison
    if not comparison.others:
        return None
    best = statistics.best(comparison.others)
    base = {run.seed: run for run in comparison.baseline.runs}
    shared = [(run, base[run.seed]) for run in best.runs if run.seed in base]
    parts = [[_counts(statistics, run) for run in pair] for pair in shared]
    if not parts or not all(part for pair in parts for part in pair):
        return None
    ours, theirs = ([pair[side] for pair in parts] for side in (0, 1))
    gains = {part: _mean_iou(ours, part) - _mean_iou(theirs, part) for part in ("all", "boundary", "interior")}
    labelled = {part: theirs[0][part][1] for part in ("all", "boundary")}
    measures = {
        "% of pixels": labelled["all"] / labelled["all"].sum(),
        "% near its outline": ratio(labelled["boundary"], labelled["all"]),
        f"IoU of {comparison.baseline.label}": _mean_iou(theirs, "all"),
    }
    columns: dict[str, Sequence[Cell]] = {"Class": [text(info.name) for info in comparison.classes]}
    columns |= {name: [percent(none_if_nan(value)) for value in values] for name, values in measures.items()}
    titles = {"all": "Δ IoU", "boundary": "Δ boundary IoU", "interior": "Δ interior IoU"}
    columns |= {title: [points(none_if_nan(value)) for value in gains[part]] for part, title in titles.items()}
    rows = list(zip(*columns.values(), strict=True))
    notes = [score_source(comparison), *_notes(len(shared), gains["all"], measures)]
    return Table("gains", f"Where {best.label} gains and loses, in points", list(columns), rows, notes)


def _counts(statistics: Statistics, run: Run) -> dict[str, Scores]:
    """(3, C) counts of all images, near outlines and inside; means over checkpoints. Empty if one of them has none."""
    found = [{"all": each.counts, **each.regions} for each in statistics.image_counts(run)]
    if not found or any({"boundary", "interior"} - set(each) for each in found):
        return {}
    return {part: np.mean([each[part].sum(0) for each in found], axis=0) for part in ("all", "boundary", "interior")}


def _mean_iou(runs: Sequence[dict[str, Scores]], part: str) -> Scores:
    return np.mean([iou_of_counts(run[part]) for run in runs], axis=0)


def _notes(seeds: int, gains: Scores, measures: dict[str, Scores]) -> list[str]:
    over = f"Mean over {counted(seeds, 'shared seed')}."
    near = f"Boundary: within {100 * BOUNDARY_RATIO:g} % of the image's diagonal from an outline"
    notes = [f"{over} {near}. Interior: more than {INTERIOR_MARGIN} pixels from every outline. They overlap."]
    there = np.flatnonzero(~np.isnan(gains))
    if len(there) >= _FEWEST:
        ranks = {name: spearmanr(values[there], gains[there]).statistic for name, values in measures.items()}
        words = ", ".join(f"{rank:+.2f} with {name}" for name, rank in ranks.items())
        notes.append(f"Rank correlation of Δ IoU over {len(there)} classes (Spearman): {words}.")
    return notes
