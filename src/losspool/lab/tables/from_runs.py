"""The paper's tables out of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from losspool.lab import paper
from losspool.lab.bootstrap import BLOCK, ImageIntervals
from losspool.lab.paper import Printed
from losspool.lab.records import VALIDATION
from losspool.lab.statistics import CONFIDENCE, Statistics
from losspool.lab.tables.model import Table
from losspool.lab.tables.paper_like import (
    ClassEntry,
    MethodEntry,
    SweepEntry,
    class_table,
    method_table,
    step_label,
    sweep_table,
)
from losspool.lab.tables.questions import convergence_table, look_table, worst_table
from losspool.lab.variants import Comparison, Variant, shown
from losspool.segmentation.errors import UserError


def run_tables(comparison: Comparison, kinds: list[str] | None = None) -> list[Table]:
    """The named tables, or all that these runs have something to say in."""
    for kind in kinds or ():
        if kind not in KINDS:
            raise UserError(f"a table is one of {', '.join(KINDS)}, got {kind!r}")
    tables = []
    for kind in kinds or KINDS:
        table = KINDS[kind](Statistics(comparison))
        if table is not None:
            tables.append(replace(table, notes=[*_failures(comparison), *table.notes]))
        elif kinds:
            raise UserError(f"these runs make no table {kind!r}: {_NEEDS[kind]}")
    return tables


def _failures(comparison: Comparison) -> list[str]:
    return [f"Failed, and so without a score: {'; '.join(comparison.failures)}."] if comparison.failures else []


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
        return SweepEntry(label, at_steps, several, gain, _paper_sweep(variant, setting))

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
        score, printed = statistics.score(variant), _paper_method(variant)
        entries.append(
            MethodEntry(variant.label, score, len(variant.runs), gain, images.miou if images else None, printed)
        )
    notes = [*score_notes(comparison), *image_notes(over_images), *_verdicts(entries, comparison.baseline.label)]
    return method_table(entries, comparison.baseline.label, notes)


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
        rows = paper.TABLE3.get(variant.config.data.name, {}).get(variant.label)
        printed = rows.mean if rows and tuple(names) == paper.CLASSES[variant.config.data.name] else ()
        intervals = (*images.classes, images.miou) if images else ()
        scores, mean = statistics.class_scores(variant), statistics.score(variant)
        entries.append(ClassEntry(variant.label, scores, mean, gains, intervals, printed))
    return class_table(names, entries, [*score_notes(comparison), *image_notes(over_images)])


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
    "convergence": "there is nothing beside the baseline",
    "looks": "only generated streets have looks",
}


def score_source(comparison: Comparison) -> str:
    """Where the numbers come from."""
    several = len(comparison.steps) > 1
    steps = ("mean over the checkpoints " if several else "checkpoint ") + ", ".join(map(step_label, comparison.steps))
    steps = steps if comparison.steps else "the checkpoints that were evaluated of each run"
    where = "validation in training" if comparison.source == VALIDATION else f"evaluation {comparison.source}"
    images = "" if comparison.images is None else f"images {comparison.images}, "
    return f"{comparison.baseline.config.data.name}, {where}, {images}{steps}."


def score_notes(comparison: Comparison) -> list[str]:
    """Where the numbers come from, and what the deviations are over."""
    seeds = {len(variant.runs) for variant in comparison.variants}
    if seeds == {1}:
        spread = "deviations are over checkpoints, and " if len(comparison.steps) > 1 else ""
        over = f"One seed each: {spread}differences have no interval over seeds."
    elif 1 in seeds:
        over = "Deviations are over seeds, where there are several; else over checkpoints."
    else:
        over = "Deviations are over seeds."
    return [f"{score_source(comparison)} {over}", *_unequal(comparison)]


def image_notes(over_images: Mapping[str, ImageIntervals | None]) -> list[str]:
    """What the intervals over images mean, and what those over seeds do not."""
    if not any(over_images.values()):
        return []
    notes = [
        "An interval over seeds tells of training anew and scoring on these same images; one over images tells of "
        "scoring these same networks on other footage like this "
        f"(blocks of about {BLOCK} consecutive images were drawn anew). Neither tells of other places or cameras."
    ]
    missing = ", ".join(label for label, found in over_images.items() if found is None)
    return notes + ([f"Not counted on the same images as the baseline: {missing}."] if missing else [])


def _verdicts(entries: Sequence[MethodEntry], baseline: str) -> list[str]:
    """What may be claimed: which differences their intervals hold apart from zero. Without one over seeds none is."""
    both = any(entry.images is not None for entry in entries)
    found: dict[str, list[str]] = {"better": [], "worse": [], "undecided": [], "without the intervals": []}
    for entry in entries:
        gain, images = entry.gain, entry.images
        if entry.label == baseline:
            continue
        if gain is None or gain.low is None or gain.high is None or (both and images is None):
            found["without the intervals"].append(entry.label)
            continue
        lows, highs = [gain.low, *([images.low] if images else [])], [gain.high, *([images.high] if images else [])]
        found["better" if min(lows) > 0 else "worse" if max(highs) < 0 else "undecided"].append(entry.label)
    if not any(found[word] for word in ("better", "worse", "undecided")):
        return []
    by = "both intervals" if both else "the interval over seeds"
    words = ". ".join(f"{word.capitalize()}: {'; '.join(labels)}" for word, labels in found.items() if labels)
    return [f"Against {baseline}, by {by}, each at {100 * CONFIDENCE:g} % by itself. {words}."]


def _unequal(comparison: Comparison) -> list[str]:
    """What a reader would stumble over: differences over fewer seeds than the means, or means over other classes."""
    statistics, base = Statistics(comparison), comparison.baseline
    seeds = {run.seed for run in base.runs}
    fewer: dict[int, list[str]] = {}
    for variant in comparison.others:
        shared = seeds & {run.seed for run in variant.runs}
        if len(shared) < max(len(seeds), len(variant.runs)):
            fewer.setdefault(len(shared), []).append(variant.label)
    notes = [
        f"Differences over the {count} seed{'s' * (count != 1)} shared with {base.label}: {'; '.join(labels)}."
        for count, labels in sorted(fewer.items())
    ]
    for variant in comparison.others:
        for info, ours, theirs in zip(
            comparison.classes, statistics.class_scores(variant), statistics.class_scores(base), strict=True
        ):
            if (ours is None) != (theirs is None):
                wrong, right = (base.label, variant.label) if ours is None else (variant.label, base.label)
                notes.append(
                    f"{info.name} is in no label: {wrong} predicts it all the same and gets 0, {right} does not."
                )
    return notes


def _setting(comparison: Comparison, variant: Variant) -> str | None:
    """The one setting in which a variant differs from others of its method."""
    keys = comparison.differences_within(variant.method)
    return next(iter(keys)) if len(keys) == 1 else None


def _paper_sweep(variant: Variant, setting: str) -> Printed | None:
    """The paper's row, where data and loss are the same."""
    config = variant.config
    if config.data.name != "cityscapes" or config.method not in ("lmp", "base_plus"):
        return None
    if config.method == "base_plus":
        return paper.TABLE1_BASE.printed
    if setting == "loss.p" and config.loss.share == 0.25 and config.loss.p in paper.TABLE1:
        return paper.TABLE1[config.loss.p].printed
    if setting == "loss.m" and config.loss.p == 1.3 and isinstance(config.loss.share, float):
        return paper.M_SWEEP.get(config.loss.share)
    return None


def _paper_method(variant: Variant) -> Printed | None:
    """The paper's row, if the variant is the method as the paper has it: the label is the method's name alone."""
    return paper.METHODS.get(variant.config.data.name, {}).get(variant.label)
