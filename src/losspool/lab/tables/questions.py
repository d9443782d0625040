"""Questions that the paper asks beyond its tables: worst classes, speed of convergence, imbalance within a class."""

from __future__ import annotations

from losspool.lab.comparison import CONFIDENCE, Comparison, Difference, Statistics, Variant, holm
from losspool.lab.tables.notes import score_source, scored_classes
from losspool.lab.tables.table import NOTHING, Cell, Table, number, percent, points, text
from losspool.segmentation.base import counted

_WORST = (1, 2, 3, 5, 7, 10, 15)
RARE = 0.01
"""A class with a smaller share of the pixels counts as rare."""
RESOLUTION = 0.25
"""The share of a step by which it may be uncertain for a factor of two steps to be printed."""


def answer(statistics: Statistics) -> str:
    """One sentence: by how much the best variant beats the baseline, and how certain that is."""
    comparison = statistics.comparison
    base, others = comparison.baseline, comparison.others
    if not others:
        return f"{base.label} reaches {_miou(statistics, base)}; no other variant was run to compare it with."
    best = statistics.best(others)
    name = best.label if len(others) == 1 else f"{best.label}, the best of {len(others)} variants,"
    gain = statistics.gain(best)
    if gain is None:
        scores = f"{_miou(statistics, best)} and {base.label} {_miou(statistics, base)}"
        return f"{name} reaches {scores}; they share no seed, so the difference has no interval."
    rounded = round(100 * gain.mean, 1)
    verdict = (
        f"{abs(rounded):.1f} mIoU points {'better' if rounded > 0 else 'worse'} than"
        if rounded
        else "within 0.1 mIoU points of"
    )
    return f"{name} is {verdict} {base.label}; {_certainty(statistics, best, gain)}."


def _certainty(statistics: Statistics, variant: Variant, gain: Difference) -> str:
    images = statistics.image_intervals(variant)
    alone = len(variant.runs) == len(statistics.comparison.baseline.runs) == 1
    seeds = f"{gain.pairs} seeds" if gain.pairs > 1 else "one seed" if alone else "one seed in common"
    joint = images.joint if images else None
    interval = joint or gain.interval or (images.miou if images else None)
    if interval is None:
        return f"{seeds}, so no interval"
    over = f"interval over {seeds}" if gain.interval else f"interval over images, of {seeds}"
    over += " and the images" if joint else ""
    ends = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
    chance = ", so the difference may be chance" if interval.low <= 0 <= interval.high else ""
    return f"{100 * CONFIDENCE:g} % {over}: {ends} points{chance}"


def _miou(statistics: Statistics, variant: Variant) -> str:
    return f"{100 * statistics.score(variant).mean:.1f} % mIoU"


def tests_table(statistics: Statistics) -> Table | None:
    """Whether each variant differs from the baseline: paired t-tests over seeds, corrected together."""
    comparison = statistics.comparison
    gains = {variant.label: gain for variant in comparison.others if (gain := statistics.gain(variant))}
    tested = {label: gain.p_value for label, gain in gains.items() if gain.p_value is not None}
    if not tested:
        return None
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    rows = [
        [text(label), text(gains[label].pairs), points(gains[label].mean), _p_value(tested[label]), _p_value(value)]
        for label, value in corrected.items()
    ]
    columns = ["Method", "seeds", f"Δ to {comparison.baseline.label}", "p", "p, corrected"]
    count = len(tested)
    notes = [
        score_source(comparison),
        f"Two-sided t-tests of the paired differences; {counted(count, 'test')}, corrected by Holm's method.",
    ]
    return Table("tests", f"Does a method differ from {comparison.baseline.label}?", columns, rows, notes)


def seeds_table(statistics: Statistics) -> Table | None:
    """The gain with each seed; with several checkpoints at each of them."""
    comparison = statistics.comparison
    steps = comparison.steps if len(comparison.steps) > 1 else (None,)
    gains = {
        variant.label if step is None else f"{variant.label}, checkpoint {step}": gain
        for variant in comparison.others
        for step in steps
        if (gain := statistics.gain_by_seed(variant, step))
    }
    if not gains:
        return None
    seeds = sorted(set().union(*gains.values()))
    rows = [
        [text(label), *(points(gain.get(seed)) for seed in seeds), points(sum(gain.values()) / len(gain))]
        for label, gain in gains.items()
    ]
    title = f"Δ to {comparison.baseline.label} with each seed, in points of mIoU"
    columns = ["Method", *(f"seed {seed}" for seed in seeds), "Mean"]
    return Table("seeds", title, columns, rows, [score_source(comparison, apart=True)])


def _p_value(value: float) -> Cell:
    return Cell(f"{value:.3f}" if value >= 0.001 else f"{value:.1e}", repr(value))


def worst_table(statistics: Statistics) -> Table | None:
    """By how much the worst k classes of the baseline would have to improve to match each variant."""
    comparison = statistics.comparison
    gains = {variant.label: statistics.gain(variant) for variant in comparison.others}
    pairs = zip(comparison.classes, statistics.class_scores(comparison.baseline), strict=True)
    scores = {info.name: score.mean for info, score in pairs if score is not None}
    if not gains or not scores:
        return None
    order, count = sorted(scores, key=lambda name: scores[name]), len(scores)
    rows = []
    for worst in [*(k for k in _WORST if k < count), count]:
        needed = [None if gain is None else needed_per_class(100 * gain.mean, count, worst) for gain in gains.values()]
        rows.append([text(worst), *(number(value, sign=True) for value in needed), text(order[worst - 1])])
    base = comparison.baseline.label
    title = f"To match a method, by how many points would each of the worst k classes of {base} have to improve?"
    columns = ["k", *gains, "the k-th worst"]
    notes = [score_source(comparison), f"A gain in mIoU times {count}/k: the mean is over {count} classes."]
    return Table("worst", title, columns, rows, notes)


def convergence_table(statistics: Statistics) -> Table | None:
    """The step at which each variant first reaches the baseline's final score."""
    comparison = statistics.comparison
    if not comparison.others or comparison.selection.images is not None:  # training does not score single images
        return None
    if not all(map(statistics.curve, comparison.variants)):  # some were trained without validation
        return None
    curve = statistics.curve(comparison.baseline)
    end = max(curve)
    # A curve is not monotonic: the baseline may reach this score before its end.
    own = statistics.first_step_at(comparison.baseline, curve[end]) or end  # no step reaches NaN
    rows, coarse = [], False
    for variant in comparison.variants:
        step = statistics.first_step_at(variant, curve[end])
        final = list(statistics.curve(variant).values())[-1]
        reached = text(step) if step is not None else Cell("never", "")
        both = step is not None and _resolved(curve, own) and _resolved(statistics.curve(variant), step)
        known = both or variant is comparison.baseline
        share = Cell(f"{own / step:.2f} ×", repr(own / step)) if known and step else Cell(NOTHING)
        coarse |= step is not None and not known
        rows.append([text(variant.label), percent(final), reached, share])
    base = comparison.baseline.label
    title = f"The step at which a method first reaches the mIoU with which {base} ends, {100 * curve[end]:.2f} %"
    columns = ["Method", "final mIoU", "first step", f"faster than {base}"]
    notes = [f"By the validation in training, mean over seeds{scored_classes(comparison)}; {base} has {end} steps."]
    if coarse:
        notes.append("Without a factor where the validations are too far apart to know it.")
    return Table("convergence", title, columns, rows, notes)


def _resolved(curve: dict[int, float], step: int) -> bool:
    """Whether the validation before is near enough: the score was reached at some step between the two."""
    before = max((each for each in curve if each < step), default=0)
    return step - before <= RESOLUTION * step


def look_table(statistics: Statistics) -> Table | None:
    """Recall per look, where the scores have it: the imbalance within a class."""
    comparison = statistics.comparison
    recalls = {variant.label: statistics.recall(variant) for variant in comparison.variants}
    base = recalls[comparison.baseline.label]
    if not base:
        return None
    others = [variant.label for variant in comparison.others]
    rows = []
    for look in base:
        found = [recall.get(look) for recall in recalls.values()]
        gains = [_gain(recalls[label].get(look), base[look]) for label in others]
        rows.append([text(look), *map(percent, found), *map(points, gains)])
    columns = ["Look", *recalls, *(f"Δ {label}" for label in others)]
    notes = ["The share of a look's pixels that were found; the rarer looks of a class are its hard cases."]
    return Table("looks", "Recall per look in %", columns, rows, notes)


def rare_table(statistics: Statistics) -> Table | None:
    """The IoU of each rare class, and the mean over all classes."""
    comparison = statistics.comparison
    rare, total = _rare(comparison), sum(comparison.pixels)
    if not rare:
        return None
    scores = [statistics.class_scores(variant) for variant in comparison.variants]
    rows = [
        [
            text(comparison.classes[index].name),
            percent(comparison.pixels[index] / total),
            *(percent(score.mean if (score := each[index]) else None) for each in scores),
        ]
        for index in rare
    ]
    means = [percent(statistics.score(variant).mean) for variant in comparison.variants]
    rows.append([text(f"mean of all {len(comparison.classes)}"), Cell(""), *means])
    columns = ["Class", "% of pixels", *(variant.label for variant in comparison.variants)]
    title = f"IoU in % of the rare classes, each under {100 * RARE:g} % of the pixels"
    return Table("rare", title, columns, rows, [score_source(comparison)], frozenset({len(rare)}))


def _rare(comparison: Comparison) -> list[int]:
    """The indices of the rare classes."""
    total = sum(comparison.pixels)
    return [index for index, pixels in enumerate(comparison.pixels) if 0 < pixels < RARE * total]


def rare_classes(statistics: Statistics) -> list[str]:
    """For every variant but the baseline, a sentence on its gain on rare classes."""
    comparison = statistics.comparison
    rare, sentences = _rare(comparison), []
    for variant in comparison.others if rare else ():
        gains = [gain.mean for index, gain in enumerate(statistics.class_gains(variant)) if index in rare and gain]
        if gains:
            better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
            sentences.append(
                f"Rare classes (each under {100 * RARE:g} % of the pixels): {variant.label} is better than "
                f"{comparison.baseline.label} on {better} of {len(gains)} and worse on {worse}, "
                f"by {100 * sum(gains) / len(gains):+.2f} points of IoU on average."
            )
    return sentences


def needed_per_class(gain: float, classes: int, worst: int) -> float:
    """How much each of the ``worst`` classes must improve for the mean over all ``classes`` to improve by ``gain``."""
    return gain * classes / worst


def _gain(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs
