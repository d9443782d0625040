"""Tables of numbers for terminals of any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from losspool.segmentation.base.console import plain

_GAP = 2
_SHORTEST = 8  # columns that a name keeps


def number_tables(
    corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], width: int, *, total: bool = False
) -> list[Table]:
    """A table of rows with a name and numbers, or several below each other if ``width`` is too small for all columns.

    Long names are cut in a narrow terminal, numbers never. With ``total``, the last row is a total.
    """
    names = max(cell_len(plain(name)) for name in (corner, *(name for name, _ in rows)))
    numbers = [max((cell_len(cells[place]) for _, cells in rows), default=0) for place in range(len(columns))]
    widths = [max(cell_len(plain(header)), least) for header, least in zip(columns, numbers, strict=True)]
    if names + sum(widths) + _GAP * len(widths) > width:
        names = min(names, max(width // 2, _SHORTEST))
        most = width - names - _GAP
        widths = [max(min(wide, most), least) for wide, least in zip(widths, numbers, strict=True)]
    return [
        _table(names, corner, [(columns[place], widths[place]) for place in block], rows, block, total)
        for block in _blocks(widths, width - names)
    ]


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns that fit beside each other; at least one."""
    block: list[int] = []
    used = 0
    for place, wide in enumerate(widths):
        if block and used + _GAP + wide > room:
            yield block
            block, used = [], 0
        block.append(place)
        used += _GAP + wide
    yield block


def _table(
    names: int,
    corner: str,
    columns: Sequence[tuple[str, int]],
    rows: Sequence[tuple[str, Sequence[str]]],
    block: Sequence[int],
    total: bool,
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP // 2))
    table.add_column(_cut(corner, names), no_wrap=True, min_width=names)
    for header, wide in columns:
        table.add_column(_cut(header, wide), justify="right", no_wrap=True, min_width=wide)
    for place, (name, cells) in enumerate(rows):
        style = "bold" if total and place == len(rows) - 1 else None
        table.add_row(_cut(name, names), *(cells[each] for each in block), style=style)
    return table


def _cut(text: str, width: int) -> Text:
    cell = Text(plain(text))
    cell.truncate(width, overflow="ellipsis")
    return cell
