"""Fig. 3: what each class gains over the baseline, against its number of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from losspool.lab.comparison import CONFIDENCE, Interval, Statistics, Variant
from losspool.lab.figures import style
from losspool.lab.figures.labels import name_points
from losspool.segmentation.base import UserError, plain, say

MOST_PANELS = 3
"""With more variants than this, the figure shows only the one with the highest mIoU."""

_SMALL = 9.0


@dataclass(frozen=True)
class ClassGain:
    """A point of the figure, in points of IoU (hundredths)."""

    name: str
    pixels: int
    gain: float
    interval: Interval | None
    """Over seeds; None with one seed."""


def class_gains(statistics: Statistics, variant: Variant) -> list[ClassGain]:
    """The classes with labelled pixels and a score in both variants."""
    comparison = statistics.comparison
    rows = zip(comparison.classes, comparison.pixels, statistics.class_gains(variant), strict=True)
    return [
        ClassGain(plain(info.name), pixels, 100 * gain.mean, _in_points(gain.interval))
        for info, pixels, gain in rows
        if gain is not None and pixels > 0
    ]


def draw(statistics: Statistics) -> Figure:
    """A panel for each variant but the baseline, or for the best of many. Call inside ``style.styled()``."""
    rows, candidates = _shown(statistics)
    figure = Figure(figsize=(5.2, 0.6 + 3.6 * len(rows)), layout="constrained")
    # One above the other with shared scales: a class is in the same column everywhere.
    panels = figure.subplots(len(rows), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    everything = [each for row in rows.values() for each in row]
    for axes, (label, row) in zip(panels, rows.items(), strict=True):
        _draw_points(axes, row)
        axes.set_title(f"{plain(label)}: {_counted_gains(row)}")
        axes.set_ylabel(f"IoU − IoU of {plain(statistics.comparison.baseline.label)}, in points")
    panels[0].set_ylim(*_limits(everything))
    _set_pixels_axis(panels[-1], [each.pixels for each in everything], _remark(everything, candidates))
    for axes, row in zip(panels, rows.values(), strict=True):  # last, when the layout is final
        unnamed = name_points(
            axes, [(each.pixels, each.gain) for each in row], [each.name for each in row], size=_SMALL
        )
        if unnamed:
            say(f"fig3 has no room for the names of: {', '.join(unnamed)}")
    return figure


def _shown(statistics: Statistics) -> tuple[dict[str, list[ClassGain]], int]:
    """The points of each panel, by the variant's label, and the number of candidates."""
    comparison = statistics.comparison
    gains = {variant.label: class_gains(statistics, variant) for variant in comparison.rivals}
    paired = tuple(variant for variant in comparison.others if gains[variant.label])
    if not paired:
        raise UserError(f"no other variant shares a seed and a class with {comparison.baseline.label}")
    for label in [label for label, row in gains.items() if not row]:
        say(f"left out of fig3: {label} shares no seed and class with {comparison.baseline.label}")
    chosen = paired if len(paired) <= MOST_PANELS else (statistics.best(paired),)
    return {variant.label: gains[variant.label] for variant in chosen}, len(paired)


def _counted_gains(row: Sequence[ClassGain]) -> str:
    """How many classes gain, and by how many intervals: means alone promise too much."""
    intervals = [each.interval for each in row if each.interval]
    gaining, losing = sum(each.low > 0 for each in intervals), sum(each.high < 0 for each in intervals)
    held = f"\nby the whole interval {gaining} gain, {losing} lose" if intervals else ""
    return f"{sum(each.gain > 0 for each in row)} of {len(row)} classes gain{held}"


def _draw_points(axes: Axes, row: Sequence[ClassGain]) -> None:
    dark = style.ramp(3)[0]
    axes.axhline(0, color=style.INK, linewidth=0.9)
    bars = [(each.pixels, each.interval.low, each.interval.high) for each in row if each.interval]
    if bars:
        axes.vlines(*zip(*bars, strict=True), color="#ababab", linewidth=0.8)
    faces = [dark if each.gain > 0 else "white" for each in row]  # distinct in grey, too
    axes.scatter(
        [each.pixels for each in row],
        [each.gain for each in row],
        s=26,
        c=faces,
        edgecolors=dark,
        linewidths=1.1,
        zorder=4,
    )
    axes.grid(axis="y")


def _limits(everything: Sequence[ClassGain]) -> tuple[float, float]:
    """Room for all points and intervals, but no more for intervals than keeps the points apart."""
    means = [0.0, *(each.gain for each in everything)]
    low, high = min(means), max(means)
    span = max(high - low, 0.5)
    ends = _ends(everything)
    bottom = max(min([low, *ends]), low - span / 2)
    top = min(max([high, *ends]), high + span / 2)
    return bottom - 0.1 * span, top + 0.1 * span


def _remark(everything: Sequence[ClassGain], candidates: int) -> str:
    """What the reader must know about the points."""
    parts = []
    if ends := _ends(everything):
        bottom, top = _limits(everything)
        cut = ", cut at the frame" if min(ends) < bottom or max(ends) > top else ""
        parts.append(f"bars: {CONFIDENCE:.0%} interval over seeds{cut}")
    if candidates > MOST_PANELS:
        parts.append(f"the best by mIoU of {candidates} variants")
    return "; ".join(parts)


def _set_pixels_axis(axes: Axes, pixels: Sequence[int], remark: str) -> None:
    low, high = min(pixels), max(pixels)
    margin = max((high / low) ** 0.08, 1.3)
    axes.set(xscale="log", xlim=(low / margin, high * margin))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 50 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_counted))  # the usual one writes formulas
    axes.set_xlabel("labelled pixels of the class" + (f"\n{remark}" if remark else ""))


def _counted(pixels: float, _: int) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if pixels >= unit:
            return f"{pixels / unit:,g}{letter}"
    return f"{pixels:g}"


def _ends(everything: Sequence[ClassGain]) -> list[float]:
    return [end for each in everything if each.interval for end in (each.interval.low, each.interval.high)]


def _in_points(interval: Interval | None) -> Interval | None:
    return interval and Interval(100 * interval.low, 100 * interval.high)
