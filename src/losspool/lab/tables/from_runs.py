"""The paper's tables, from runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from losspool.lab.comparison import CONFIDENCE, Comparison, Statistics, Variant, format_setting, settings
from losspool.lab.tables import paper
from losspool.lab.tables.gains import gains_table
from losspool.lab.tables.notes import image_notes, run_notes, score_notes, score_source, verdicts
from losspool.lab.tables.questions import convergence_table, look_table, seeds_table, tests_table, worst_table
from losspool.lab.tables.table import Cell, Table, interval, number, percent, points, text
from losspool.segmentation.base import UserError
from losspool.segmentation.prediction import METRICS

INTERVAL = f"{100 * CONFIDENCE:g} % interval"
OVER_IMAGES = f"{INTERVAL} over images"
JOINT = f"{INTERVAL} over both"


def run_tables(statistics: Statistics, kinds: Sequence[str] | None = None) -> list[Table]:
    """The named tables, or all that these runs have data for."""
    for kind in kinds or ():
        if kind not in KINDS:
            raise UserError(f"a table is one of {', '.join(KINDS)}, got {kind!r}")
    tables = []
    for kind in kinds or KINDS:
        table = KINDS[kind].make(statistics)
        if table is not None:
            tables.append(replace(table, notes=[*run_notes(statistics.comparison), *table.notes]))
        elif kinds:
            raise UserError(f"these runs make no table {kind!r}: {KINDS[kind].missing}")
    return tables


def sensitivity(statistics: Statistics) -> Table | None:
    """Table 1, if variants of one method differ in a single setting; the baseline is the last row."""
    comparison = statistics.comparison
    swept = {variant: key for variant in comparison.variants if (key := _swept_setting(comparison, variant))}
    if len(swept) < 2 or len(set(swept.values())) != 1 or len({variant.method for variant in swept}) != 1:
        return None
    setting = next(iter(swept.values()))
    last = comparison.baseline if comparison.baseline not in swept else None
    rows = {variant: format_setting(settings(variant.config).get(setting)) for variant in swept}
    rows |= {last: last.label} if last else {}
    at_steps = [
        [statistics.at_step(variant, step) for step in comparison.steps] or [statistics.score(variant).mean]
        for variant in rows
    ]
    seeds = [statistics.score(variant).std if len(variant.runs) > 1 else None for variant in rows]
    gains = [statistics.gain(variant) if last and variant is not last else None for variant in rows]
    known = comparison.selection.everything
    printed = [paper.sweep_score(variant.config, setting) if known else None for variant in rows]
    name, gain = setting.rsplit(".", maxsplit=1)[-1], f"Δ to {comparison.baseline.label}"
    columns = {
        name: [*map(text, rows.values())],
        **paper.checkpoint_columns(comparison.steps, at_steps),
        "Std.Dev. over seeds": [*map(percent, seeds)],
        gain: [points(each.mean if each else None) for each in gains],
        INTERVAL: [interval(each.interval if each else None) for each in gains],
        "paper": [*map(text, printed)],
    }
    return Table.of_columns(
        f"sensitivity-{name}",
        f"Sensitivity to {name}: mIoU in %",
        columns,
        best="Mean",
        optional=["Std.Dev. over seeds", gain, INTERVAL, "paper"],
        notes=[f"{score_source(comparison)} Std.Dev. is over these checkpoints."],
        last=last is not None,
    )


def methods(statistics: Statistics) -> Table:
    """Table 2: a row per variant."""
    comparison, variants = statistics.comparison, statistics.comparison.variants
    compared = [None if variant is comparison.baseline else variant for variant in variants]
    scores = [statistics.score(variant) for variant in variants]
    gains = [statistics.gain(variant) if variant else None for variant in compared]
    images = [statistics.image_intervals(variant) if variant else None for variant in compared]
    known = comparison.selection.everything
    printed = [paper.method_score(each.config.data.name, each.label) if known else None for each in variants]
    gain, over_seeds = f"Δ to {comparison.baseline.label}", f"{INTERVAL} over seeds" if any(images) else INTERVAL
    columns = {
        "Method": [text(variant.label) for variant in variants],
        "seeds": [text(len(variant.runs)) for variant in variants],
        "mean IoU": [percent(score.mean) for score in scores],
        "Std.Dev.": [percent(score.std) for score in scores],
        gain: [points(each.mean if each else None) for each in gains],
        over_seeds: [interval(each.interval if each else None) for each in gains],
        OVER_IMAGES: [interval(each.miou if each else None) for each in images],
        JOINT: [interval(each.joint if each else None) for each in images],
        "paper": [*map(text, printed)],
    }
    return Table.of_columns(
        "methods",
        "Methods: mIoU in %",
        columns,
        best="mean IoU",
        optional=["Std.Dev.", gain, over_seeds, OVER_IMAGES, JOINT, "paper"],
        notes=[*score_notes(statistics), *image_notes(statistics, joint=True), *verdicts(statistics)],
    )


def classes(statistics: Statistics) -> Table:
    """Table 3: per class the mean and the standard deviation of every variant."""
    comparison = statistics.comparison
    names = [info.name for info in comparison.classes]
    rows: list[list[Cell]] = []
    rules = set()
    for variant in comparison.variants:
        rules.add(len(rows))
        label = variant.label
        rows += paper.class_rows(label, [*statistics.class_scores(variant), statistics.score(variant)])
        if variant is not comparison.baseline:
            gains = [*statistics.class_gains(variant), statistics.gain(variant)]
            ends = [gain.interval if gain else None for gain in gains]
            rows.append([text(f"{label} Δ"), *(points(gain.mean if gain else None) for gain in gains)])
            if any(ends):
                rows.append([text(f"{label} Δ {INTERVAL}"), *map(interval, ends)])
            if images := statistics.image_intervals(variant):
                rows.append([text(f"{label} Δ {OVER_IMAGES}"), *map(interval, (*images.classes, images.miou))])
        printed = paper.class_means(variant.config.data.name, label, names)
        if printed and comparison.selection.everything:
            rows.append([text(f"{label} paper"), *map(number, printed)])
    notes = [*score_notes(statistics), *image_notes(statistics)]
    return Table("classes", "Classes: IoU in %", ["Method", *names, "Mean"], rows, notes, frozenset(rules - {0}))


def metrics(statistics: Statistics) -> Table | None:
    """Scores other than the IoU: a row per variant and score, a column per class."""
    comparison = statistics.comparison
    rows: list[list[Cell]] = []
    rules = set()
    found = {variant.label: statistics.metrics(variant) for variant in comparison.variants}
    for name, words in METRICS.items():
        rules.add(len(rows))
        for label, own in found.items():
            if (scores := own.get(name)) is not None:
                rows += paper.class_rows(f"{words}, {label}", scores)
    if not rows:
        return None
    names = [info.name for info in comparison.classes]
    notes = [*score_notes(statistics), "Scores per image are means over the images that have the class."]
    return Table(
        "metrics", "Other scores in %", ["Score", *names, "Mean"], rows, notes, frozenset(rules - {0, len(rows)})
    )


def confusion(statistics: Statistics) -> Table | None:
    """What the pixels of each class were predicted as: a row per variant and label, a column per prediction."""
    comparison = statistics.comparison
    names = [info.name for info in comparison.classes]
    rows: list[list[Cell]] = []
    rules = set()
    for variant in comparison.variants:
        shares = statistics.confusion(variant)
        rules.add(len(rows))
        for name, row in zip(names, [] if shares is None else shares.tolist(), strict=False):
            rows.append(
                [text(f"{variant.label}: {name}"), *(percent(None if share != share else share) for share in row)]
            )
    if not rows:
        return None
    title = "Confusion: what the pixels of a class were predicted as, in % of them"
    notes = [score_source(comparison)]
    return Table("confusion", title, ["Label", *names], rows, notes, frozenset(rules - {0, len(rows)}))


class Kind(NamedTuple):
    """A kind of table: how it is made, and why it may not be."""

    make: Callable[[Statistics], Table | None]
    """Returns None if the runs have no data for it."""
    missing: str = "they have no data for it"


KINDS = {
    "sensitivity": Kind(sensitivity, "no method has variants that differ in exactly one setting"),
    "methods": Kind(methods),
    "classes": Kind(classes),
    "metrics": Kind(metrics, "their scores are not of single images; name an evaluation with --scores"),
    "confusion": Kind(
        confusion, "their scores have no confusion matrix, or are of some images or classes only; name an evaluation"
    ),
    "gains": Kind(
        gains_table,
        "there is only the baseline, or the scores are not of single images; name an evaluation with --scores",
    ),
    "tests": Kind(tests_table, "no variant shares two seeds with the baseline"),
    "seeds": Kind(seeds_table, "no variant shares a seed with the baseline"),
    "worst": Kind(worst_table, "there is only the baseline"),
    "convergence": Kind(
        convergence_table,
        "there is only the baseline, a run has no validation, or --images is set: training scores them all together",
    ),
    "looks": Kind(look_table, "their scores have no recall per look, or --images is set"),
}
"""By the name that ``losspool lab table --kind`` takes."""


def _swept_setting(comparison: Comparison, variant: Variant) -> str | None:
    """The one setting in which a variant differs from others of its method."""
    keys = comparison.differences(variant.method)
    return next(iter(keys)) if len(keys) == 1 else None
