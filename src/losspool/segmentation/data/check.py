"""Validate a dataset: read every file once and count the labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from losspool.segmentation.base import UserError, in_threads, plain, track
from losspool.segmentation.data.files import FileDataset
from losspool.segmentation.data.protocol import IGNORE, Dataset, read_pair
from losspool.segmentation.data.registry import open_dataset, splits_of

_BAR = 32
_NUMBERS = 35  # terminal columns used by the numbers and gaps


@dataclass
class Findings:
    """The contents of a split, and its faults."""

    dataset: Dataset
    labelled: bool
    """False for splits published without labels, such as benchmark test splits."""
    pixels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    """(256,): number of pixels per label, over all sound images."""
    images: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    """(256,): number of images that contain the label."""
    sound: int = 0
    faults: list[str] = field(default_factory=list)


def check_dataset(dataset: Dataset) -> Findings:
    """Check that all images and labels exist and decode, sizes match, and labels hold only known values."""
    files = dataset if isinstance(dataset, FileDataset) else None
    # Benchmarks withhold the labels of their test splits. In any other split a missing label is a fault.
    secret = dataset.name.rpartition("/")[2].startswith("test")
    labelled = files is None or not secret or any(pair.label for pair in files.pairs)
    findings = Findings(dataset, labelled)

    def counts(index: int) -> NDArray[np.int64] | str:
        try:
            if labelled:
                return np.bincount(read_pair(dataset, index)[1].ravel(), minlength=256)
            dataset.image(index)
            return np.zeros(256, np.int64)
        except UserError as error:  # disk errors too: report every file
            return str(error)

    for result in track(in_threads(counts, range(len(dataset))), len(dataset), f"Checking {dataset.name}"):
        if isinstance(result, str):
            findings.faults.append(result)
        else:
            findings.sound += 1
            findings.pixels += result
            findings.images += result > 0
    findings.faults += [f"{path}: this label has no image" for path in (files.orphans if files else ())]
    return findings


def report_check(name: str, root: Path | None, split: str | None = None) -> bool:
    """Print the classes and faults of one split, or of all splits. Return whether no fault was found."""
    output, sound = Console(highlight=False, emoji=False), True

    def show(text: str) -> None:
        output.print(plain(text), markup=False, soft_wrap=True)

    for each in [split] if split else splits_of(name, root):
        try:
            dataset = open_dataset(name, root, each)
        except UserError as error:
            if split:
                raise
            show(f"fault: {error}")  # a split that fails to open must not hide the others
            sound = False
            continue
        findings = check_dataset(dataset)
        if findings.labelled and findings.sound:
            output.print(class_table(findings, output.width))
        for fault in findings.faults:
            show(f"fault: {fault}")
        summary = f"{dataset.name}: images {len(dataset)}, faults {len(findings.faults)}"
        show(summary + ("" if findings.labelled else ", no labels"))
        output.print()
        sound &= not findings.faults
    return sound


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
