"""Print what a check has found."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from losspool.segmentation.base import UserError, plain
from losspool.segmentation.data.checking.check import Findings, check_dataset
from losspool.segmentation.data.checking.traps import notes_and_warnings, overlaps
from losspool.segmentation.data.files.faults import report_lines
from losspool.segmentation.data.files.file_dataset import existing_folder
from losspool.segmentation.data.files.images import HasReading, Reading
from losspool.segmentation.data.importing.hints import check_root, known_splits, layout_hint
from losspool.segmentation.data.kinds.registry import is_custom, open_dataset, splits_of
from losspool.segmentation.data.protocol import IGNORE

_BAR = 32
_NUMBERS = 35  # terminal columns used by the numbers and gaps


def report_check(name: str, root: Path | None, split: str | None = None, reading: Reading | None = None) -> bool:
    """Print the classes, faults and warnings of one split, or of all splits. Return whether no fault was found.

    A folder alone may stand in the place of the name: it is a dataset of the kind ``folder``. ``reading`` is how
    training would read the image files (default: as recipes do by default).
    """
    reading, warned = reading or Reading(), False
    if root is None and (os.path.exists(name) or os.sep in name):
        name, root = "folder", existing_folder(Path(name), "the root of the data")
    output, sound = Console(highlight=False, emoji=False), True
    checked: list[Findings] = []
    said: set[str] = set()

    def show(text: str) -> None:
        output.print(plain(text), markup=False, soft_wrap=True)

    if split:
        check_root(name, root)
    splits = [split] if split else known_splits(name, root)
    read_as = _training_reading(name, root, reading)
    for each in splits:
        try:
            dataset = open_dataset(name, root, each, reading=read_as)
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
        warned |= bool(warnings)
    if not checked and is_custom(name) and root is not None and (hint := layout_hint(root)):
        show(f"note: {root} {hint}")
    for warning in overlaps(checked):
        show(f"warning: {warning}")
        warned = True
    if sound and root is not None and "train" in splits:
        kind = [] if name == "folder" else ["--name", name]
        first = "look at the warnings above, then " if warned else ""
        show(f"next: {first}{shlex.join(['losspool', 'plan', str(root), *reading.settings, *kind])}")
    return sound


def _training_reading(name: str, root: Path | None, reading: Reading) -> Reading:
    """How training reads all splits: with the range of the training images, if they have one."""
    try:
        train = open_dataset(name, root, "train", reading=reading) if "train" in splits_of(name, root) else None
    except UserError:  # reported when the split is checked
        return reading
    return train.reading if isinstance(train, HasReading) else reading


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
