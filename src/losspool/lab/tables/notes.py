"""Notes below a table: where its numbers come from, what its intervals mean, and which claims they support."""

from __future__ import annotations

import math

from losspool.lab.comparison import CONFIDENCE, VALIDATION, Comparison, Statistics, Variant
from losspool.lab.tables.paper import step_label
from losspool.segmentation.base import counted


def run_notes(comparison: Comparison) -> list[str]:
    """Which runs have no score, or not their final one."""
    unfinished = [
        f"{variant.label} (seed {run.seed})"
        for variant in comparison.variants
        for run in variant.runs
        if run.description.get("status") != "finished"
    ]
    notes = [f"Failed, and so without a score: {'; '.join(comparison.failures)}."] if comparison.failures else []
    return notes + ([f"Not finished, and so scored before the end: {'; '.join(unfinished)}."] if unfinished else [])


def score_source(comparison: Comparison, apart: bool = False) -> str:
    """Where the numbers come from: the mean over several checkpoints, unless each has its own row."""
    several = "checkpoints " if apart else "mean over the checkpoints "
    steps = (several if len(comparison.steps) > 1 else "checkpoint ") + ", ".join(map(step_label, comparison.steps))
    steps = steps if comparison.steps else "the checkpoints that were evaluated of each run"
    where = "validation in training" if comparison.source == VALIDATION else f"evaluation {comparison.source}"
    images = "" if comparison.selection.images is None else f", images {comparison.selection.images}"
    return f"{comparison.baseline.config.data.title}, {where}{images}{scored_classes(comparison)}, {steps}."


def scored_classes(comparison: Comparison) -> str:
    """Which classes are scored, if not all."""
    chosen = comparison.selection.classes
    return "" if chosen is None else f", classes {', '.join(chosen)}"


def score_notes(statistics: Statistics) -> list[str]:
    """Where the numbers come from, what the deviations are over, and what is not equal between the methods."""
    comparison = statistics.comparison
    seeds = {len(variant.runs) for variant in comparison.variants}
    if seeds == {1}:
        spread = "deviations are over checkpoints, and " if len(comparison.steps) > 1 else ""
        over = f"One seed each: {spread}differences have no interval over seeds."
    elif 1 in seeds:
        over = "Deviations are over seeds" + (", or else over checkpoints." if len(comparison.steps) > 1 else ".")
    else:
        over = "Deviations are over seeds."
    return [f"{score_source(comparison)} {over}", *_unequal_seeds(comparison), *_unlabelled(statistics)]


def image_notes(statistics: Statistics, joint: bool = False) -> list[str]:
    """What the intervals over images mean, beside those over seeds, if there are any, and ``joint`` ones over both."""
    others = statistics.comparison.others
    over_images = {variant.label: statistics.image_intervals(variant) for variant in others}
    found = next(filter(None, over_images.values()), None)
    if found is None:
        return _without_image_intervals(statistics)
    drawn = {"image": "images", "group": "groups of images"}.get(found.drawn, "blocks of neighbouring images")
    drawn += "" if found.drawn == "image" else f", {found.images / found.blocks:.3g} on average"
    covered = f"image interval covers resampling the evaluated images ({found.blocks} {drawn})."
    if not any(gain and gain.interval for gain in map(statistics.gain, others)):
        notes = [f"The {covered} It does not cover retraining, other places or cameras."]
    else:
        rest = "The last interval covers both together. None covers" if joint else "Neither covers"
        notes = [f"The seed interval covers retraining; the {covered} {rest} other places or cameras."]
    if joint and any(_seeds_decide(statistics, variant) for variant in others):
        notes.append(
            "Where the last interval equals the seed interval, there are too few seeds to say what the images add."
        )
    return notes + _without_image_intervals(statistics)


def _seeds_decide(statistics: Statistics, variant: Variant) -> bool:
    """Whether the interval over seeds and images is the one over seeds: it is never narrower."""
    gain, images = statistics.gain(variant), statistics.image_intervals(variant)
    if not (gain and gain.interval and images and images.joint):
        return False
    return math.isclose(images.joint.high - images.joint.low, gain.interval.high - gain.interval.low)


def _without_image_intervals(statistics: Statistics) -> list[str]:
    """Why there are no intervals over images, by reason; which variants lack them, if not all do."""
    others = statistics.comparison.others
    missing: dict[str, list[str]] = {}
    for variant in others:
        if why := statistics.no_image_intervals(variant):
            missing.setdefault(why, []).append(variant.label)
    return [
        f"Without an image interval, because {why}{'' if len(labels) == len(others) else ': ' + '; '.join(labels)}."
        for why, labels in missing.items()
    ]


def verdicts(statistics: Statistics) -> list[str]:
    """Which differences their intervals separate from zero. Without an interval over seeds nothing is claimed."""
    comparison = statistics.comparison
    both = any(map(statistics.image_intervals, comparison.others))
    found: dict[str, list[str]] = {"better": [], "worse": [], "undecided": [], "without the intervals": []}
    for variant in comparison.others:
        gain, images = statistics.gain(variant), statistics.image_intervals(variant)
        over_images = [images.miou if images else None, images.joint if images else None]
        intervals = [gain.interval if gain else None, *(over_images if both else [])]
        known = [interval for interval in intervals if interval is not None]
        if len(known) < len(intervals):
            verdict = "without the intervals"
        elif all(interval.low > 0 for interval in known):
            verdict = "better"
        else:
            verdict = "worse" if all(interval.high < 0 for interval in known) else "undecided"
        found[verdict].append(variant.label)
    if not any(found[word] for word in ("better", "worse", "undecided")):
        return []
    by = "all three intervals" if both else "the interval over seeds"
    words = ". ".join(f"{word.capitalize()}: {'; '.join(labels)}" for word, labels in found.items() if labels)
    return [f"Against {comparison.baseline.label}, by {by} ({100 * CONFIDENCE:g} %, uncorrected). {words}."]


def _unequal_seeds(comparison: Comparison) -> list[str]:
    """Which differences are over fewer seeds than the means."""
    base = comparison.baseline
    seeds = {run.seed for run in base.runs}
    fewer: dict[int, list[str]] = {}
    for variant in comparison.others:
        shared = seeds & {run.seed for run in variant.runs}
        if len(shared) < max(len(seeds), len(variant.runs)):
            fewer.setdefault(len(shared), []).append(variant.label)
    return [
        f"Differences over the {counted(count, 'seed')} shared with {base.label}: {'; '.join(labels)}."
        for count, labels in sorted(fewer.items())
    ]


def _unlabelled(statistics: Statistics) -> list[str]:
    """Unlabelled classes that a method predicts, and so scores 0: its mean is over more classes."""
    comparison, base = statistics.comparison, statistics.comparison.baseline
    scores = {variant.label: statistics.class_scores(variant) for variant in comparison.variants}
    notes = []
    for variant in comparison.others:
        for info, ours, theirs in zip(comparison.classes, scores[variant.label], scores[base.label], strict=True):
            if (ours is None) != (theirs is None):
                wrong, right = (base.label, variant.label) if ours is None else (variant.label, base.label)
                notes.append(f"{info.name} is not labelled: {wrong} predicts it and scores 0, {right} does not.")
    pixels = comparison.summaries(base.runs[0])[-1].get("pixels") or []
    return notes + [
        f"{info.name} is not labelled: all predict it and score 0."
        for info, labelled, *found in zip(comparison.classes, pixels, *scores.values(), strict=False)
        if labelled == 0 and None not in found
    ]
