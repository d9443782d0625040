"""Rows of results: as a table, as files, and in the README."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measure import Ratio

_BEGIN, _END = "<!-- results -->", "<!-- /results -->"
_COLUMNS = ("work", "against", "measure", "ours", "theirs", "ratio", "quartiles", "rounds", "bar", "met")


@dataclass(frozen=True)
class Row:
    """One comparison; ``bar`` is the largest ratio that meets it."""

    work: str
    against: str
    measure: str
    unit: str
    ratio: Ratio
    rounds: int
    bar: float

    @property
    def met(self) -> bool:
        return self.ratio.median <= self.bar

    def cells(self) -> tuple[str, ...]:
        ratio = self.ratio
        return (
            self.work,
            self.against,
            self.measure,
            f"{ratio.ours:.4g} {self.unit}",
            f"{ratio.theirs:.4g} {self.unit}",
            f"{ratio.median:.3f}",
            f"{ratio.lower:.3f}–{ratio.upper:.3f}",
            str(self.rounds),
            f"≤ {self.bar:.2f}",
            "yes" if self.met else "**NO**",
        )

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio._asdict(), "met": self.met}


@dataclass
class Report:
    """Everything that a run has to say."""

    header: dict[str, str]
    full: bool  # nothing was left out by choice
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # what was left out, and why

    def markdown(self) -> str:
        lines = [f"- {name}: {value}" for name, value in self.header.items()]
        lines += ["", *table([_COLUMNS, *(row.cells() for row in self.rows)]), "", *self._verdict()]
        if self.skipped:
            lines += ["", "Left out:", "", *(f"- {name}: {reason}" for name, reason in self.skipped.items())]
        return "\n".join(lines) + "\n"

    def save(self, output: Path) -> None:
        """Write ``output`` with the suffix .json and with .md."""
        record = {
            "header": self.header,
            "full": self.full,
            "rows": [row.record() for row in self.rows],
            "skipped": self.skipped,
        }
        write(output.with_suffix(".json"), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        write(output.with_suffix(".md"), f"# Benchmark results\n\n{self.markdown()}")

    def publish(self, folder: Path) -> None:
        """Put all of it between the markers of the benchmarks' README, and the ratios into docs/speed.md."""
        _insert(folder / "README.md", self.markdown())
        header = ("work", "against", "measure", "ratio", "bar")
        ratios = [
            tuple(cell for name, cell in zip(_COLUMNS, row.cells(), strict=True) if name in header) for row in self.rows
        ]
        _insert(folder.parent / "docs" / "speed.md", "\n".join(table([header, *ratios])) + "\n")

    def _verdict(self) -> list[str]:
        missed = [f"- {row.work} against {row.against}: {row.measure}" for row in self.rows if not row.met]
        lines = [f"Bars met: {len(self.rows) - len(missed)} of {len(self.rows)}."]
        return [*lines, "", "Missed:", "", *missed] if missed else lines


def _insert(document: Path, text: str) -> None:
    before, begin, rest = document.read_text(encoding="utf-8").partition(_BEGIN + "\n")
    _, end, after = rest.partition(_END + "\n")
    if not (begin and end):
        raise ValueError(f"{document} lacks the lines {_BEGIN!r} and {_END!r}")
    write(document, f"{before}{begin}\n{text}\n{end}{after}")


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a Markdown table; the first row is its head."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def write(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old or the new text, never half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's files are private
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
