"""Run an import from the command line: print what it found, and write a card, ``README.md``, beside the data."""

from __future__ import annotations

import shlex
from pathlib import Path

from losspool.segmentation.base import counted, percent, plain, replacing
from losspool.segmentation.data.files.faults import grouped, report_lines
from losspool.segmentation.data.files.groups import divided_groups
from losspool.segmentation.data.importing.class_lists import INFERRED
from losspool.segmentation.data.importing.hints import is_cityscapes
from losspool.segmentation.data.importing.import_data import Imported, ImportOptions, import_data
from losspool.segmentation.data.protocol import IGNORE

_MUCH = 0.05
"""Share of the pixels that match no class, or a guessed void value, from which on this is a warning."""


def report_import(source: Path, dest: Path, options: ImportOptions, command: str) -> bool:
    """Import, print what was found, and write the card. Return whether no fault was found."""
    done = import_data(source, dest, options)
    with replacing(dest / "README.md") as partial:
        partial.write_text(card(done, source, command), encoding="utf-8", errors="backslashreplace")
    print(plain(f"layout: {done.layout}"))
    print(plain(f"classes: {', '.join(each.name for each in done.classes.classes)} (from {done.classes.origin})"))
    if is_cityscapes(source):
        quoted = shlex.quote(str(source))
        print(plain(f"note: this is Cityscapes, which needs no import: losspool data check cityscapes {quoted}"))
    for note in notes(done):
        print(f"note: {note}")
    for warning in warnings(done):
        print(f"warning: {warning}")
    for line in report_lines(done.faults, dest.with_name(f"{dest.name}-faults.txt")):
        print(f"fault: {line}")
    counts = ", ".join(f"{split} {len(names)}" for split, names in done.splits.items())
    print(plain(f"{dest}: {counts}; the counts are in {dest / 'README.md'}"))
    quoted = shlex.quote(str(dest))
    print(plain(f"next: losspool data check {quoted}, then losspool plan {quoted}"))
    return not done.faults


def notes(done: Imported) -> list[str]:
    """What the user should know, a sentence each."""
    found = []
    if done.classes.origin == INFERRED:
        found.append("no file names the classes; write their names into classes.yaml")
        if _void_share(done) <= _MUCH:
            found += _guessed_void(done)
    if done.unknown and _unknown_share(done) <= _MUCH:
        found.append(_unknown(done))
    if done.oriented:
        have = counted(done.oriented, "image has", "images have")
        were = counted(done.turned, "label was", "labels were")
        how = f"; {were} drawn on the stored pixels and turned with them" if done.turned else ""
        found.append(f"{have} an EXIF orientation, which is applied on reading{how}")
    if done.classes.intensity:
        low, high = done.classes.intensity
        found.append(f"images have more than 8 bits; the values {low:g} to {high:g} are read as black to white")
    if done.unlabelled:
        found.append(f"{counted(done.unlabelled, 'image has', 'images have')} no label: left out")
    if done.unlisted:
        found.append(f"{counted(done.unlisted, 'image is', 'images are')} in no list: left out")
    return [plain(each) for each in found]


def warnings(done: Imported) -> list[str]:
    """What may be wrong, a sentence each."""
    found = [f"no image of {split} could be imported" for split in done.empty]
    if "train" not in {*done.splits, *done.empty}:
        found.append("no image is for training")
    if done.unknown and _unknown_share(done) > _MUCH:
        found.append(plain(_unknown(done)))
    if done.classes.origin == INFERRED and _void_share(done) > _MUCH:
        found += _guessed_void(done)
    if divided := done.classes.groups.divided(done.splits):
        found.append(plain(divided_groups(divided)))
    if done.assumed:
        found.append(
            f"{counted(done.assumed, 'label')} of images with an EXIF orientation may have been drawn on the upright "
            "image or on the stored pixels, and no size shows which: upright is assumed; pass --labels-stored if they "
            "were drawn on the stored pixels"
        )
    if done.shapeless:
        have = counted(done.shapeless, "object has", "objects have")
        found.append(f"{have} no segmentation and became background: boxes say nothing about pixels")
    return found


def _guessed_void(done: Imported) -> list[str]:
    share = percent(_void_share(done))
    return [
        f"{value} is taken for void ({share} of the pixels); if it is a class, name all classes with --classes"
        for value in done.classes.void_ids
    ]


def _void_share(done: Imported) -> float:
    return sum(int(counts[IGNORE]) for counts in done.pixels.values()) / max(_pixels(done), 1)


def _unknown_share(done: Imported) -> float:
    return sum(each.pixels for each in done.unknown) / _pixels(done)


def _pixels(done: Imported) -> int:
    return sum(int(counts.sum()) for counts in done.pixels.values())


def _unknown(done: Imported) -> str:
    pixels, first = sum(each.pixels for each in done.unknown), max(done.unknown, key=lambda each: each.pixels)
    return (
        f"{counted(pixels, 'pixel')} ({percent(_unknown_share(done))}) in {counted(len(done.unknown), 'label')} "
        f"matched no class and became void, most of them ({first.pixels}) in {first.path}, such as {first.value} at "
        f"row {first.row}, column {first.column}; name the class, or raise --tolerance"
    )


def card(done: Imported, source: Path, command: str) -> str:
    """The content of the card."""
    lines = [
        "# Imported data",
        "",
        f"From `{plain(str(source))}` ({plain(done.layout)}), by",
        "",
        f"    {plain(command)}",
        "",
    ]
    lines += [
        f"Classes: {plain(done.classes.origin)}. Label values are in `classes.yaml`; {done.classes.void} is void.",
        "",
    ]
    order = ["train", "val", "test"]
    splits = sorted(done.splits, key=lambda split: (order.index(split) if split in order else len(order), split))
    lines += ["| | " + " | ".join(splits) + " |", "|---" * (len(splits) + 1) + "|"]
    lines += ["| images | " + " | ".join(str(len(done.splits[split])) for split in splits) + " |"]
    rows = [(each.name, label) for label, each in enumerate(done.classes.classes)] + [("void", IGNORE)]
    for name, label in rows:
        shares = [_share(done, split, label) for split in splits]
        lines.append(f"| {plain(name)}, % of pixels | " + " | ".join(shares) + " |")
    lines += ["", *(f"- {note}" for note in notes(done)), *(f"- warning: {each}" for each in warnings(done))]
    lines += [f"- fault: {plain(line)}" for line in grouped(done.faults)]
    return "\n".join(lines).rstrip() + "\n"


def _share(done: Imported, split: str, label: int) -> str:
    counts = done.pixels.get(split)
    return "–" if counts is None else f"{100 * counts[label] / max(counts.sum(), 1):.2f}"
