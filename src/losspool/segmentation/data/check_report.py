"""Print what a check has found."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from losspool.segmentation.base import UserError, plain
from losspool.segmentation.data.check import Findings, check_dataset
from losspool.segmentation.data.faults import report_lines
from losspool.segmentation.data.files import FileDataset
from losspool.segmentation.data.images import Reading
from losspool.segmentation.data.import_data import source_layout
from losspool.segmentation.data.protocol import IGNORE
from losspool.segmentation.data.registry import open_dataset, splits_of
from losspool.segmentation.data.traps import notes_and_warnings, overlaps

_BAR = 32
_NUMBERS = 35  # terminal columns used by the numbers and gaps


def report_check(name: str, root: Path | None, split: str | None = None) -> bool:
    """Print the classes, faults and warnings of one split, or of all splits. Return whether no fault was found.

    A folder alone may stand in the place of the name: it is a dataset of the kind ``folder``.
    """
    if root is None and os.path.isdir(name):
        name, root = "folder", Path(name)
    output, sound = Console(highlight=False, emoji=False), True
    checked: list[Findings] = []
    said: set[str] = set()

    def show(text: str) -> None:
        output.print(plain(text), markup=False, soft_wrap=True)

    splits = [split] if split else _splits(name, root)
    reading = _training_reading(name, root)
    for each in splits:
        try:
            dataset = open_dataset(name, root, each, reading=reading)
        except UserError as error:
            if split:
                raise
            if str(error) not in said:  # a fault of classes.yaml is one of every split
                show(f"fault: {error}")  # a split that fails to open must not hide the others
            said.add(str(error))
            sound = False
            continue
        findings = check_dataset(dataset)
        checked.append(findings)
        if findings.labelled and findings.sound:
            output.print(class_table(findings, output.width))
        for line in report_lines(findings.faults, Path(f"{dataset.name.replace('/', '-')}-faults.txt")):
            show(f"fault: {line}")
        notes, warnings = notes_and_warnings(findings)
        for line in (*(f"note: {note}" for note in notes), *(f"warning: {warning}" for warning in warnings)):
            show(line)
        summary = f"{dataset.name}: images {len(dataset)}, faults {len(findings.faults)}"
        summary += f", warnings {len(warnings)}" if warnings else ""
        show(summary + ("" if findings.labelled else ", no labels"))
        output.print()
        sound &= not findings.faults
    if not checked and name == "folder" and root is not None and (hint := _import_hint(root)):
        show(f"note: {root} {hint}")
    for warning in overlaps(checked):
        show(f"warning: {warning}")
    return sound


def _training_reading(name: str, root: Path | None) -> Reading | None:
    """How training reads all splits: with the range of the training images. None where they have no range."""
    try:
        train = open_dataset(name, root, "train") if "train" in splits_of(name, root) else None
    except UserError:  # reported when the split is checked
        return None
    return train.reading if isinstance(train, FileDataset) and isinstance(train.reading.intensity, tuple) else None


def _splits(name: str, root: Path | None) -> Sequence[str]:
    """The splits; where there are none, the error says how to get them."""
    try:
        return splits_of(name, root)
    except UserError as error:
        hint = _import_hint(root) if name == "folder" and root is not None and os.path.isdir(root) else ""
        raise UserError(f"{error}; it {hint}" if hint else str(error)) from None


def _import_hint(root: Path) -> str:
    """The layout that a folder has instead of ours, and the command that takes it; empty if it has none."""
    try:
        command = shlex.join(["losspool", "data", "import", str(root), "DEST"])
        return f"has the layout {source_layout(root)}, which this takes: {command}"
    except UserError:
        return ""


def class_table(findings: Findings, width: int) -> Table:
    """Build a table of each class's share of pixels and images, with a bar, for a terminal ``width`` columns wide."""
    total, largest = findings.pixels.sum(), findings.pixels.max()
    table = Table(title=Text(plain(findings.dataset.name)), title_justify="left", box=None, pad_edge=False)
    for header in ("label", "class", "% of pixels", "% of images", ""):
        table.add_column(header, justify="left" if header in ("class", "") else "right", no_wrap=True)
    rows = [(str(label), plain(info.name), label, info.color) for label, info in enumerate(findings.dataset.classes)]
    rows.append(("", "void", IGNORE, (128, 128, 128)))
    names = min(max(cell_len(name) for _, name, _, _ in rows), max(width - _NUMBERS - 8, 8))
    bars = max(min(width - _NUMBERS - names, _BAR), 0)
    for index_text, name, label, color in rows:
        pixels, images = findings.pixels[label], findings.images[label]
        bar = "█" * round(bars * pixels / max(largest, 1)) or ("▏" if pixels and bars else "")
        name_cell = Text(name)
        name_cell.truncate(names, overflow="ellipsis")
        table.add_row(
            index_text,
            name_cell,
            f"{100 * pixels / max(total, 1):.2f}",
            f"{100 * images / max(findings.sound, 1):.1f}",
            Text(
                bar, style="rgb({},{},{})".format(*color) if sum(color) > 90 else ""
            ),  # dark colours are invisible on black
        )
    return table
