"""A table before it has a format: cells with what they show and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from losspool.lab.comparison import Interval

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One entry."""

    text: str
    """Human-readable."""
    full: str = ""
    """For programs: every digit."""
    mark: str = ""
    """``best`` or ``second`` of its column, as the paper marks them."""
    ends: tuple[str, str] | None = None
    """The ends of an interval, in place of ``full``."""


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

    @classmethod
    def of_columns(
        cls,
        name: str,
        title: str,
        columns: Mapping[str, Sequence[Cell]],
        *,
        best: str,
        optional: Sequence[str] = (),
        notes: Sequence[str] = (),
        last: bool = False,
    ) -> Table:
        """Build a table from its columns.

        Args:
            best: the column whose two largest entries are marked.
            optional: columns that are dropped where every cell is empty.
            last: the last row is what the others are compared with: it gets a line above it, and no mark.
        """
        empty = {key for key in optional if all(cell.text == NOTHING for cell in columns[key])}
        kept = {key: cells for key, cells in columns.items() if key not in empty}
        ranked = len(kept[best]) - last
        kept[best] = [*_marked(kept[best][:ranked]), *kept[best][ranked:]]
        rules = frozenset({ranked}) if last else frozenset()
        return cls(name, title, list(kept), list(zip(*kept.values(), strict=True)), notes, rules)

    def transposed(self) -> Table:
        """Columns as rows, for a table wider than a page. Lines between rows are lost."""
        columns = ["", *(row[0].text for row in self.rows)]
        rows = [
            [text(name), *(row[place] for row in self.rows)] for place, name in enumerate(self.columns[1:], start=1)
        ]
        return replace(self, columns=columns, rows=rows, rules=frozenset())


def text(value: object) -> Cell:
    """The value as it prints; None is an empty cell."""
    shown = NOTHING if value is None else str(value)
    return Cell(shown, shown)


def number(value: float | None, sign: bool = False) -> Cell:
    """A number in percent or points, with two digits as in the paper."""
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{value:+.2f}" if sign else f"{value:.2f}", repr(value))


def percent(share: float | None) -> Cell:
    """A share between 0 and 1, in percent."""
    return number(None if share is None else 100 * share)


def points(gain: float | None) -> Cell:
    """A difference of shares, in points."""
    return number(None if gain is None else 100 * gain, sign=True)


def interval(value: Interval | None) -> Cell:
    """In points."""
    if value is None:
        return Cell(NOTHING)
    low, high = 100 * value.low, 100 * value.high
    return Cell(f"{low:+.2f} … {high:+.2f}", ends=(repr(low), repr(high)))


def _marked(cells: Sequence[Cell]) -> list[Cell]:
    """The largest entry marked as best and the next as second; equal entries alike."""
    values = sorted({cell.text for cell in cells if cell.full}, key=float, reverse=True)
    marks = dict(zip(values, ("best", "second"), strict=False)) if len(values) > 2 else {}
    return [replace(cell, mark=marks.get(cell.text, "")) for cell in cells]
