"""Tables as Markdown, LaTeX and CSV, and on the terminal."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from losspool.lab.tables.table import Cell, Table
from losspool.segmentation.base import UserError, plain, replacing

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def markdown(table: Table) -> str:
    """Title above, notes below. The best entry is bold, the second underlined."""

    def shown(cell: Cell) -> str:
        body = _markdown_text(cell.text)
        return {"best": f"**{body}**", "second": f"<u>{body}</u>"}.get(cell.mark, body)

    lines = [f"**{_markdown_text(table.title)}**", ""]
    lines.append("| " + " | ".join(map(_markdown_text, table.columns)) + " |")
    lines.append("|" + "|".join(["---", *("---:" for _ in table.columns[1:])]) + "|")
    lines += ["| " + " | ".join(map(shown, row)) + " |" for row in table.rows]
    lines += [line for note in table.notes for line in ("", _markdown_text(note))]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    r"""A table environment for ``\usepackage{booktabs}``."""

    def shown(cell: Cell) -> str:
        body = _latex_text(cell.text)
        return {"best": rf"\textbf{{{body}}}", "second": rf"\underline{{{body}}}"}.get(cell.mark, body)

    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_latex_text, table.columns)) + r" \\", r"\midrule"]
    for number, row in enumerate(table.rows):
        lines += [r"\midrule"] if number in table.rules else []
        lines.append(" & ".join(map(shown, row)) + r" \\")
    title = table.title if table.title.endswith("?") else f"{table.title}."
    words = " ".join(_latex_text(sentence) for sentence in (title, *table.notes))
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{words}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """Every digit of every number, without title and notes. An interval takes two columns, or two rows."""
    columns = list(zip(*table.rows, strict=True))
    wide = [any(cell.ends for cell in column) and not any(cell.full for cell in column) for column in columns]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        name for column, two in zip(table.columns, wide, strict=True) for name in (_ends(column) if two else (column,))
    )
    for row in table.rows:
        intervals = any(cell.ends and not two for cell, two in zip(row, wide, strict=True))
        for end in (0, 1) if intervals else (None,):
            cells: list[str] = []
            for cell, two in zip(row, wide, strict=True):
                if two:
                    cells += cell.ends or ("", "")
                else:
                    cells.append(cell.full if end is None or cell.ends is None else cell.ends[end])
            if end is not None:
                cells[0] = _ends(cells[0])[end]
            writer.writerow(cells)
    return file.getvalue()


def _ends(name: str) -> tuple[str, str]:
    return f"{name}, low", f"{name}, high"


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": comma_separated}


def format_table(table: Table, kind: str) -> str:
    """The table as ``md``, ``tex`` or ``csv``."""
    if kind not in FORMATS:
        raise UserError(f"a table's format is one of {', '.join(FORMATS)}, got {kind!r}")
    return FORMATS[kind](table)


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write every table in every format."""
    paths = []
    for table in tables:
        for kind in FORMATS:
            paths.append(folder / f"{table.name}.{kind}")
            with replacing(paths[-1]) as partial:
                partial.write_text(format_table(table, kind), encoding="utf-8")
    return paths


def show_tables(tables: Sequence[Table], kind: str | None = None, folder: Path | None = None) -> None:
    """Write all tables to a folder, or print them: in one of the formats, or for the terminal."""
    if folder is not None:
        for path in write_tables(tables, folder):
            print(plain(str(path)))
    elif kind is not None:
        print("\n".join(format_table(table, kind) for table in tables), end="")
    else:
        output = Console(highlight=False, emoji=False)
        for table in tables:
            output.print(terminal(table, output.width), "")


def terminal(table: Table, width: int) -> Group:
    """For a terminal of ``width`` columns: transposed where it does not fit, and split into parts if necessary."""
    if sum(_widths(table)) > width:
        table = table.transposed()
    parts = [_drawn(table, places) for places in _fitting(_widths(table), width)]
    notes = [Text(plain(note), style="dim") for note in table.notes]
    return Group(Text(plain(table.title), style="bold"), *parts, *notes)


def _drawn(table: Table, places: list[int]) -> RichTable:
    drawn = RichTable(box=None, pad_edge=False)
    for place in places:
        drawn.add_column(Text(plain(table.columns[place])), justify="right" if place else "left", no_wrap=True)
    styles = {"best": "bold", "second": "underline"}
    for number, row in enumerate(table.rows):
        if number in table.rules:
            drawn.add_section()
        cells = (row[place] for place in places)
        drawn.add_row(*(Text(plain(cell.text), style=styles.get(cell.mark, "")) for cell in cells))
    return drawn


def _widths(table: Table) -> list[int]:
    """The width of each column, with the space after it."""
    columns = zip(table.columns, *([cell.text for cell in row] for row in table.rows), strict=True)
    return [max(map(len, column)) + 2 for column in columns]


def _fitting(widths: list[int], width: int) -> list[list[int]]:
    """Split the columns into parts that fit, each with the first column and at least one other."""
    parts: list[list[int]] = []
    room = 0
    for place in range(1, len(widths)):
        if not parts or widths[place] > room:
            parts.append([0])
            room = width - widths[0]
        parts[-1].append(place)
        room -= widths[place]
    return parts


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(plain(text), quote=False))


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in plain(text))
