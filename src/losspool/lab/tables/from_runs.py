"""The paper's tables out of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from losspool.lab import paper
from losspool.lab.paper import Printed
from losspool.lab.statistics import Statistics
from losspool.lab.tables.model import Table
from losspool.lab.tables.notes import image_notes, run_notes, score_notes, score_source, verdicts
from losspool.lab.tables.paper_like import (
    ClassEntry,
    MethodEntry,
    SweepEntry,
    class_table,
    method_table,
    sweep_table,
)
from losspool.lab.tables.questions import convergence_table, look_table, worst_table
from losspool.lab.variants import Comparison, Variant, shown
from losspool.segmentation.base import UserError


def run_tables(comparison: Comparison, kinds: list[str] | None = None) -> list[Table]:
    """The named tables, or all that these runs have something to say in."""
    for kind in kinds or ():
        if kind not in KINDS:
            raise UserError(f"a table is one of {', '.join(KINDS)}, got {kind!r}")
    tables = []
    for kind in kinds or KINDS:
        table = KINDS[kind](Statistics(comparison))
        if table is not None:
            tables.append(replace(table, notes=[*run_notes(comparison), *table.notes]))
        elif kinds:
            raise UserError(f"these runs make no table {kind!r}: {_NEEDS[kind]}")
    return tables


def sensitivity(statistics: Statistics) -> Table | None:
    """Table 1, if variants of one method differ in a single setting; at the bottom the baseline."""
    comparison = statistics.comparison
    swept = [variant for variant in comparison.variants if _setting(comparison, variant) is not None]
    settings = {_setting(comparison, variant) for variant in swept}
    if len(swept) < 2 or len(settings) != 1 or len({variant.method for variant in swept}) != 1:
        return None
    (setting,) = settings
    assert setting is not None
    last = comparison.baseline if comparison.baseline not in swept else None

    def entry(variant: Variant, label: str) -> SweepEntry:
        several = statistics.score(variant) if len(variant.runs) > 1 else None
        gain = statistics.gain(variant) if last and variant is not last else None
        at_steps = [statistics.at_step(variant, step) for step in comparison.steps] or [statistics.score(variant).mean]
        return SweepEntry(label, at_steps, several, gain, _paper_sweep(comparison, variant, setting))

    entries = [entry(variant, shown(comparison.values(setting)[variant.label])) for variant in swept]
    name = setting.rsplit(".", maxsplit=1)[-1]
    notes = [f"{score_source(comparison)} Std.Dev. is over these checkpoints."]
    return sweep_table(name, comparison.steps, entries, entry(last, last.label) if last else None, notes)


def methods(statistics: Statistics) -> Table | None:
    """Table 2."""
    comparison = statistics.comparison
    over_images = {variant.label: statistics.image_intervals(variant) for variant in comparison.others}
    entries = []
    for variant in comparison.variants:
        gain = statistics.gain(variant) if variant is not comparison.baseline else None
        images = over_images.get(variant.label)
        score, printed = statistics.score(variant), _paper_method(comparison, variant)
        entries.append(
            MethodEntry(variant.label, score, len(variant.runs), gain, images.miou if images else None, printed)
        )
    label = comparison.baseline.label
    notes = [*score_notes(comparison), *image_notes(statistics, over_images), *verdicts(entries, label)]
    return method_table(entries, label, notes)


def classes(statistics: Statistics) -> Table | None:
    """Table 3."""
    comparison = statistics.comparison
    over_images = {variant.label: statistics.image_intervals(variant) for variant in comparison.others}
    names, entries = [info.name for info in comparison.classes], []
    for variant in comparison.variants:
        images = over_images.get(variant.label)
        gains = (
            [*statistics.class_gains(variant), statistics.gain(variant)] if variant is not comparison.baseline else ()
        )
        printed = _paper_classes(comparison, variant)
        intervals = (*images.classes, images.miou) if images else ()
        scores, mean = statistics.class_scores(variant), statistics.score(variant)
        entries.append(ClassEntry(variant.label, scores, mean, gains, intervals, printed))
    return class_table(names, entries, [*score_notes(comparison), *image_notes(statistics, over_images)])


KINDS: dict[str, Callable[[Statistics], Table | None]] = {
    "sensitivity": sensitivity,
    "methods": methods,
    "classes": classes,
    "worst": worst_table,
    "convergence": convergence_table,
    "looks": look_table,
}
_NEEDS = {
    "sensitivity": "no method is there in variants that differ in one setting and in nothing else",
    "worst": "there is nothing beside the baseline",
    "convergence": "there is nothing beside the baseline, or --images is there: training scores them all together",
    "looks": "only evaluations of generated streets have looks, and only those of all images",
}


def _setting(comparison: Comparison, variant: Variant) -> str | None:
    """The one setting in which a variant differs from others of its method."""
    keys = comparison.differences_within(variant.method)
    return next(iter(keys)) if len(keys) == 1 else None


def _paper_sweep(comparison: Comparison, variant: Variant, setting: str) -> Printed | None:
    """The paper's row, where data and loss are the same."""
    config = variant.config
    if (
        not comparison.selection.everything
        or config.data.name != "cityscapes"
        or config.method not in ("lmp", "base_plus")
    ):
        return None
    if config.method == "base_plus":
        return paper.TABLE1_BASE.printed
    if setting == "loss.p" and config.loss.share == 0.25 and config.loss.p in paper.TABLE1:
        return paper.TABLE1[config.loss.p].printed
    if setting == "loss.m" and config.loss.p == 1.3 and isinstance(config.loss.share, float):
        return paper.M_SWEEP.get(config.loss.share)
    return None


def _paper_classes(comparison: Comparison, variant: Variant) -> Sequence[float]:
    """The paper's row, where classes and images are the same."""
    data = variant.config.data.name
    rows = paper.TABLE3.get(data, {}).get(variant.label)
    names = tuple(info.name for info in comparison.classes)
    return rows.mean if rows and comparison.selection.everything and names == paper.CLASSES[data] else ()


def _paper_method(comparison: Comparison, variant: Variant) -> Printed | None:
    """The paper's row, if the variant is the method as the paper has it: the label is the method's name alone."""
    if not comparison.selection.everything:
        return None
    return paper.METHODS.get(variant.config.data.name, {}).get(variant.label)
