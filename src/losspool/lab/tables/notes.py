"""What stands below a table: where its numbers come from, what its intervals mean, and what they allow to claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from losspool.lab.bootstrap import ImageIntervals
from losspool.lab.records import VALIDATION
from losspool.lab.statistics import CONFIDENCE, Statistics
from losspool.lab.tables.paper_like import MethodEntry, step_label
from losspool.lab.variants import Comparison


def run_notes(comparison: Comparison) -> list[str]:
    """Which runs have no score, or not their last one."""
    unfinished = [
        f"{variant.label} (seed {run.seed})"
        for variant in comparison.variants
        for run in variant.runs
        if run.description.get("status") != "finished"
    ]
    notes = [f"Failed, and so without a score: {'; '.join(comparison.failures)}."] if comparison.failures else []
    return notes + ([f"Not finished, and so scored before the end: {'; '.join(unfinished)}."] if unfinished else [])


def score_source(comparison: Comparison) -> str:
    """Where the numbers come from."""
    several = len(comparison.steps) > 1
    steps = ("mean over the checkpoints " if several else "checkpoint ") + ", ".join(map(step_label, comparison.steps))
    steps = steps if comparison.steps else "the checkpoints that were evaluated of each run"
    where = "validation in training" if comparison.source == VALIDATION else f"evaluation {comparison.source}"
    images = "" if comparison.selection.images is None else f", images {comparison.selection.images}"
    return f"{comparison.baseline.config.data.name}, {where}{images}{of_classes(comparison)}, {steps}."


def of_classes(comparison: Comparison) -> str:
    """Which ones are scored, if not all."""
    chosen = comparison.selection.classes
    return "" if chosen is None else f", classes {', '.join(chosen)}"


def score_notes(comparison: Comparison) -> list[str]:
    """Where the numbers come from, and what the deviations are over."""
    seeds = {len(variant.runs) for variant in comparison.variants}
    if seeds == {1}:
        spread = "deviations are over checkpoints, and " if len(comparison.steps) > 1 else ""
        over = f"One seed each: {spread}differences have no interval over seeds."
    elif 1 in seeds:
        over = "Deviations are over seeds" + (", or else over checkpoints." if len(comparison.steps) > 1 else ".")
    else:
        over = "Deviations are over seeds."
    return [f"{score_source(comparison)} {over}", *_unequal(comparison)]


def image_notes(statistics: Statistics, over_images: Mapping[str, ImageIntervals | None]) -> list[str]:
    """What the intervals over images mean, and what those over seeds do not, if there are some."""
    found = next(filter(None, over_images.values()), None)
    if found is None:
        return []
    single = found.blocks == found.images
    drawn = "images" if single else f"blocks of neighbouring images, {found.images / found.blocks:.3g} on average,"
    gains = [statistics.gain(variant) for variant in statistics.comparison.others]
    over_seeds = any(gain is not None and gain.low is not None for gain in gains)
    seeds = "An interval over seeds tells of training anew and scoring on these same images; one over images tells of "
    notes = [
        (seeds if over_seeds else "An interval over images tells of ")
        + f"scoring these same networks on other footage like this ({found.blocks} {drawn} were drawn anew). "
        + ("Neither tells of" if over_seeds else "It tells nothing of training anew, or of")
        + " other places or cameras."
    ]
    missing = "; ".join(label for label, interval in over_images.items() if interval is None)
    why = "Without an interval over images, for want of seeds or counted images that the baseline has, too"
    return notes + ([f"{why}: {missing}."] if missing else [])


def verdicts(entries: Sequence[MethodEntry], baseline: str) -> list[str]:
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
    return [*notes, *_unlabelled(statistics)]


def _unlabelled(statistics: Statistics) -> list[str]:
    """Which classes every variant gets 0 for, because these images have none of it: likely where images are chosen."""
    comparison = statistics.comparison
    pixels = comparison.summaries(comparison.baseline.runs[0])[-1].get("pixels") or []
    scores = [statistics.class_scores(variant) for variant in comparison.variants]
    return [
        f"{info.name} is in no label: all predict it all the same and get 0."
        for info, labelled, *found in zip(comparison.classes, pixels, *scores, strict=False)
        if labelled == 0 and None not in found
    ]
