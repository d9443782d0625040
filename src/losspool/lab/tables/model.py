"""A table before it has a format: cells with what they show and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from losspool.lab.bootstrap import Interval
from losspool.lab.statistics import Difference
from losspool.segmentation.prediction import Spread

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One entry."""

    text: str
    """As people read it."""
    full: str = ""
    """As a program reads it: every digit."""
    mark: str = ""
    """``best`` or ``second`` of its column, as the paper sets them off."""
    ends: tuple[str, str] | None = None
    """Of an interval, in the place of ``full``."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns. The first column names the rows."""

    name: str
    """Names its files."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    rules: frozenset[int] = frozenset()
    """Rows with a line above them."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells under {len(self.columns)} columns")

    def transposed(self) -> Table:
        """Columns as rows, for a table that is wider than a page; lines between rows are lost."""
        columns = ["", *(row[0].text for row in self.rows)]
        rows = [
            [text(name), *(row[place] for row in self.rows)] for place, name in enumerate(self.columns[1:], start=1)
        ]
        return replace(self, columns=columns, rows=rows, rules=frozenset())


def text(value: object) -> Cell:
    return Cell(str(value), str(value))


def number(value: float | None, sign: bool = False) -> Cell:
    """A number in percent or in points, with two digits as the paper has them."""
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{value:+.2f}" if sign else f"{value:.2f}", repr(value))


def percent(value: float | None) -> Cell:
    """A share between 0 and 1."""
    return number(None if value is None else 100 * value)


def spread(value: Spread | None) -> tuple[Cell, Cell]:
    """Mean and standard deviation."""
    return (percent(value.mean), percent(value.std)) if value else (Cell(NOTHING), Cell(NOTHING))


def difference(value: Difference | None) -> tuple[Cell, Cell]:
    """A gain in points, and its interval."""
    if value is None:
        return Cell(NOTHING), Cell(NOTHING)
    ends = None if value.low is None or value.high is None else Interval(value.low, value.high)
    return number(100 * value.mean, sign=True), interval(ends)


def interval(value: Interval | None) -> Cell:
    """In points."""
    if value is None:
        return Cell(NOTHING)
    low, high = 100 * value.low, 100 * value.high
    return Cell(f"{low:+.2f} … {high:+.2f}", ends=(repr(low), repr(high)))


def marked(rows: Sequence[Sequence[Cell]], column: int) -> list[list[Cell]]:
    """The rows, with the largest entry of a column marked as best and the next as second; equal entries alike."""
    values = sorted({row[column].text for row in rows if row[column].full}, key=float, reverse=True)
    marks = dict(zip(values, ("best", "second"), strict=False)) if len(values) > 2 else {}
    return [
        [replace(cell, mark=marks.get(cell.text, "")) if place == column else cell for place, cell in enumerate(row)]
        for row in rows
    ]
