"""The paper's Tables 1 to 3, from numbers; where the numbers come from is not their business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from losspool.lab.bootstrap import Interval
from losspool.lab.paper import Printed
from losspool.lab.statistics import CONFIDENCE, Difference
from losspool.lab.tables.model import NOTHING, Cell, Table, difference, interval, marked, number, percent, spread, text
from losspool.segmentation.prediction import Spread

INTERVAL = f"{100 * CONFIDENCE:g} % interval"
OVER_IMAGES = f"{INTERVAL} over images"


@dataclass(frozen=True)
class SweepEntry:
    """A row of Table 1. Scores lie between 0 and 1, here and below."""

    label: str
    at_steps: Sequence[float]
    seeds: Spread | None = None
    """Over seeds, if there are several."""
    gain: Difference | None = None
    paper: Printed | None = None


def sweep_table(
    varied: str, steps: Sequence[int], entries: Sequence[SweepEntry], last: SweepEntry | None, notes: Sequence[str] = ()
) -> Table:
    """Table 1: rows are values of a parameter, columns checkpoints, and at the bottom what they are compared with."""
    everyone = [*entries, *([last] if last else [])]
    several = any(entry.seeds is not None for entry in everyone)
    compared = any(entry.gain is not None for entry in entries)
    paper = any(entry.paper is not None for entry in everyone)
    intervals = any(entry.gain is not None and entry.gain.low is not None for entry in entries)
    columns = [varied, *(map(step_label, steps) if steps else ["evaluated"]), "Mean", "Std.Dev."]
    columns += ["Std.Dev. over seeds"] if several else []
    columns += [f"Δ to {last.label}" if last else "Δ", *([INTERVAL] if intervals else [])] if compared else []
    columns += ["paper"] if paper else []

    def row(entry: SweepEntry) -> list[Cell]:
        cells = [text(entry.label), *map(percent, entry.at_steps), *spread(Spread.of(entry.at_steps))]
        cells += [percent(entry.seeds.std if entry.seeds else None)] if several else []
        cells += difference(entry.gain)[: 1 + intervals] if compared else ()
        return cells + ([text(entry.paper or NOTHING)] if paper else [])

    rows = marked([row(entry) for entry in entries], columns.index("Mean"))
    if last:
        rows.append(row(last))
    rules = frozenset({len(entries)}) if last else frozenset()
    title = f"Sensitivity to {varied}: mIoU in %"
    return Table(f"sensitivity-{varied}", title, columns, rows, notes, rules)


@dataclass(frozen=True)
class MethodEntry:
    """A row of Table 2."""

    label: str
    score: Spread
    seeds: int | None = None
    gain: Difference | None = None
    images: Interval | None = None
    """Of the gain, over images."""
    paper: Printed | None = None


def method_table(entries: Sequence[MethodEntry], baseline: str | None, notes: Sequence[str] = ()) -> Table:
    """Table 2: a row per method."""
    seeds = any(entry.seeds is not None for entry in entries)
    compared = any(entry.gain is not None for entry in entries)
    paper = any(entry.paper is not None for entry in entries)
    spreads = any(entry.score.std is not None for entry in entries)
    intervals = any(entry.gain is not None and entry.gain.low is not None for entry in entries)
    images = any(entry.images is not None for entry in entries)
    columns = ["Method", *(["seeds"] if seeds else []), "mean IoU", *(["Std.Dev."] if spreads else [])]
    over_seeds = f"{INTERVAL} over seeds" if images else INTERVAL
    columns += [f"Δ to {baseline}", *([over_seeds] if intervals else [])] if compared else []
    columns += [OVER_IMAGES] if images else []
    columns += ["paper"] if paper else []
    rows = []
    for entry in entries:
        cells = [text(entry.label), *([text(entry.seeds)] if seeds else []), *spread(entry.score)[: 1 + spreads]]
        cells += difference(entry.gain)[: 1 + intervals] if compared else ()
        cells += [interval(entry.images)] if images else []
        rows.append(cells + ([text(entry.paper or NOTHING)] if paper else []))
    return Table("methods", "Methods: mIoU in %", columns, marked(rows, columns.index("mean IoU")), notes)


@dataclass(frozen=True)
class ClassEntry:
    """A method in Table 3: each class, and the mean."""

    label: str
    classes: Sequence[Spread | None]
    mean: Spread
    gains: Sequence[Difference | None] = ()
    """Over the baseline; the last is the mean's."""
    images: Sequence[Interval | None] = ()
    """Of the same gains, over images."""
    paper: Sequence[float] = ()
    """Means of the classes and of the mIoU, in percent."""


def class_table(classes: Sequence[str], entries: Sequence[ClassEntry], notes: Sequence[str] = ()) -> Table:
    """Table 3: per class the mean and the standard deviation of every method."""
    rows: list[list[Cell]] = []
    rules = set()
    for entry in entries:
        rules.add(len(rows))
        cells = [spread(each) for each in (*entry.classes, entry.mean)]
        rows.append([text(f"{entry.label} Mean"), *(mean for mean, _ in cells)])
        if any(std.full for _, std in cells):
            rows.append([text(f"{entry.label} Std.Dev."), *(std for _, std in cells)])
        if entry.gains:
            gains = [difference(gain) for gain in entry.gains]
            rows.append([text(f"{entry.label} Δ"), *(gain for gain, _ in gains)])
            if any(ends.ends for _, ends in gains):
                rows.append([text(f"{entry.label} Δ {INTERVAL}"), *(ends for _, ends in gains)])
        if entry.images:
            rows.append([text(f"{entry.label} Δ {OVER_IMAGES}"), *map(interval, entry.images)])
        if entry.paper:
            rows.append([text(f"{entry.label} paper"), *map(number, entry.paper)])
    columns = ["Method", *classes, "Mean"]
    return Table("classes", "Classes: IoU in %", columns, rows, notes, frozenset(rules - {0}))


def step_label(step: int) -> str:
    """150000 as the paper writes it: 150k."""
    return f"{step // 1000}k" if step >= 10_000 and step % 1000 == 0 else str(step)
