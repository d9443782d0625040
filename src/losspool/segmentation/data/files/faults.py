"""Many faults, reported by kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from losspool.segmentation.base import BrokenFileError, UserError, plain, replacing

EXAMPLES = 3
"""Faults of a kind that are shown in full."""


def report_lines(faults: Sequence[UserError], file: Path) -> list[str]:
    """Lines to print. If they do not show all faults, the file does."""
    lines = grouped(faults)
    if any(len(some) > EXAMPLES for some in _kinds(faults)):
        with replacing(file) as partial:
            text = "".join(f"{plain(str(fault))}\n" for fault in faults)
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        lines.append(f"all {len(faults)} faults are listed in {file}")
    return [plain(line) for line in lines]


def grouped(faults: Sequence[UserError]) -> list[str]:
    """Up to three faults of each kind, and how many more there are."""
    lines = []
    for some in _kinds(faults):
        lines += [str(fault) for fault in some[:EXAMPLES]]
        if len(some) > EXAMPLES:
            lines.append(f"{len(some) - EXAMPLES} more like these, {len(some)} in all")
    return lines


def _kinds(faults: Sequence[UserError]) -> list[list[UserError]]:
    """Faults are of a kind if their sentences differ in names and numbers alone."""
    kinds: dict[str, list[UserError]] = {}
    for fault in faults:
        problem = fault.problem if isinstance(fault, BrokenFileError) else str(fault)
        kinds.setdefault(re.sub(r"\(.*?\)|\S*\d\S*|\S*/\S*", "…", problem), []).append(fault)
    return list(kinds.values())
