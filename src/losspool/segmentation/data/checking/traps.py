"""Properties of a dataset that would silently make a result wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags

from losspool.segmentation.base import UserError, counted, in_threads, percent
from losspool.segmentation.data.checking.check import Findings, split_name
from losspool.segmentation.data.crops.indexing import ClassIndex
from losspool.segmentation.data.files.file_dataset import FileDataset, Pair
from losspool.segmentation.data.files.groups import divided_groups, groups_of
from losspool.segmentation.data.files.images import is_cut, is_deep, open_image, orientation, raw_mode
from losspool.segmentation.data.files.intensity import found_intensity
from losspool.segmentation.data.files.labels import LabelDecoder
from losspool.segmentation.data.protocol import IGNORE, Dataset

_DARK = 48  # of 255
_LARGE_VOID, _SOME_VOID = 0.5, 0.05
_EXAMPLES = 3
_BITS = {"F": "float", "I": "32-bit"}
_MODES = {"RGB": "8-bit colour", "L": "8-bit grey", "P": "palette", "RGBA": "8-bit colour with alpha", "1": "1-bit"}


def notes_and_warnings(findings: Findings) -> tuple[list[str], list[str]]:
    """Facts about a split, and what would silently be wrong; a sentence each."""
    notes, warnings = _of_files(findings.dataset) if isinstance(findings.dataset, FileDataset) else ([], [])
    if findings.sound and findings.brightest < _DARK:
        dark = f"the images of {findings.split} are nearly black: no value exceeds {findings.brightest} of 255"
        warnings.append(f"{dark}{_brighter(findings.dataset)}")
    if findings.labelled and findings.sound:
        warnings += _of_labels(findings.dataset, findings.pixels, int(findings.pixels[IGNORE]))
    return notes, warnings


def _brighter(dataset: Dataset) -> str:
    if not isinstance(dataset, FileDataset):
        return ""
    if found_intensity([pair.image for pair in dataset.pairs]):
        return "; set data.intensity to the range of their values"
    return "; rescale the files, because data.intensity applies to grey images of more than 8 bits only"


def index_warnings(dataset: Dataset, index: ClassIndex) -> list[str]:
    """What the labels of a split would silently make wrong; a sentence each."""
    pixels = index.pixels.sum(0)
    return _of_labels(dataset, pixels, int(index.sizes.prod(1).sum() - pixels.sum()))


def _of_labels(dataset: Dataset, pixels: NDArray[np.int64], void: int) -> list[str]:
    """``pixels``: how often each label occurs; may be longer than the class list."""
    names, split = [info.name for info in dataset.classes], split_name(dataset)
    present = [name for label, name in enumerate(names) if pixels[label]]
    absent = [name for name in names if name not in present]
    share, found = void / max(void + int(pixels[: len(names)].sum()), 1), []
    if len(present) <= 1 < len(names):
        advice = "; check that the label files hold the ids of the other classes"
        found.append(f"the only class in {split} is {present[0]!r}{advice}" if present else "every pixel is void")
    elif absent:
        listed = ", ".join(map(repr, absent))
        many = f"{len(absent)} of {len(names)} classes"
        effect = (
            "cannot be learnt" if split.startswith("train") else f"{'has' if len(absent) == 1 else 'have'} no score"
        )
        found.append(f"no image of {split} holds {listed}: {many} {effect}")
    if share > 0 and (len(present) <= 1 or share > _LARGE_VOID or (absent and share > _SOME_VOID)):
        found.append(f"{percent(share)} of the pixels of {split} are void{_foreground(dataset)}")
    return found


def _foreground(dataset: Dataset) -> str:
    decoder = dataset.decoder if isinstance(dataset, FileDataset) else None
    values = (
        [value for value, label in decoder.values.items() if label == IGNORE]
        if isinstance(decoder, LabelDecoder)
        else []
    )
    if len(values) != 1:
        return ""
    return f"; is {values[0]} your foreground? Then write `id: {values[0]}` for its class, and another `ignore`"


@dataclass(frozen=True)
class _Header:
    """What the headers of an image and its label say."""

    kind: str
    pages: int
    turned: bool
    """Whether the image has an EXIF orientation."""
    label_turned: bool = False
    fits_stored: bool = False
    """Whether the label has the size of the image as it is stored, and not that of the upright image."""
    fits_both: bool = False
    """Whether its size fits both."""
    not_numbers: bool = False
    """Whether the image holds NaN."""


def _of_files(dataset: FileDataset) -> tuple[list[str], list[str]]:
    headers = [header for header in in_threads(_header, dataset.pairs) if header is not None]
    kinds = Counter(header.kind for header in headers)
    notes = ["images: " + ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())] if kinds else []
    warnings = []
    if isinstance(dataset.reading.intensity, tuple):
        low, high = dataset.reading.intensity
        notes.append(f"data.intensity reads the values {low:g} to {high:g} as black to white")
    turned = [header for header in headers if header.turned]
    if turned and dataset.reading.exif == "ignore":
        notes.append(f"the EXIF orientation of {counted(len(turned), 'image')} is ignored")
        turned = []  # nothing to warn of: images and labels are read as stored
    if turned:
        labels = sum(header.label_turned for header in turned)
        images = counted(len(turned), "image")
        notes.append(f"the EXIF orientation of {images} and {counted(labels, 'label')} is applied")
    if misfits := sum(header.fits_stored for header in turned):
        warnings.append(
            f"{counted(misfits, 'label fits', 'labels fit')} the stored pixels of the image and not the upright ones: "
            "turn the labels with losspool data import, or set data.exif=ignore in the recipe"
        )
    unclear = sum(header.fits_both for header in turned)
    if unclear and all(header.fits_both or header.fits_stored for header in turned if not header.label_turned):
        warnings.append(
            f"{counted(unclear, 'label')} of images with an EXIF orientation may have been drawn on the upright image "
            "or on the stored pixels, and no size shows which: set data.exif=ignore if it was on the stored pixels"
        )
    if missing := sum(header.not_numbers for header in headers):
        hold = counted(missing, "image holds", "images hold")
        warnings.append(f"{hold} values that are not numbers (NaN); they are read as black, so label them as void")
    if pages := sum(header.pages > 1 for header in headers):
        have = counted(pages, "image has", "images have")
        warnings.append(f"{have} several pages; only the first is read")
    return notes, warnings


def _header(pair: Pair) -> _Header | None:
    """None if a file cannot be read, which is a fault by itself."""
    try:
        kind, pages, turn, size = _described(pair.image)
        if turn == 1 or pair.label is None:
            return _Header(kind, pages, turn != 1, not_numbers=_holds_nan(pair.image))
        _, _, label_turn, label_size = _described(pair.label)
        if label_turn != 1:
            return _Header(kind, pages, True, label_turned=True)
        if _is_marked_upright(pair.label):
            return _Header(kind, pages, True)
        shown = turn > 4 and size != size[::-1]
        return _Header(kind, pages, True, fits_stored=shown and label_size == size, fits_both=not shown)
    except UserError:
        return None


def _is_marked_upright(path: Path) -> bool:
    """Whether a label has an EXIF orientation, as those that an import has turned."""
    with open_image(path) as image:
        return "exif" in image.info and ExifTags.Base.Orientation in image.getexif()


def _holds_nan(path: Path) -> bool:
    with open_image(path) as image:
        return image.mode == "F" and bool(np.isnan(np.asarray(image)).any())


def _described(path: Path) -> tuple[str, int, int, tuple[int, int]]:
    """Kind, pages, EXIF orientation and stored size, from the header alone."""
    with open_image(path) as image:
        raw = raw_mode(image)
        kind = f"{_BITS.get(image.mode, '16-bit')} grey" if is_deep(image) else _MODES.get(image.mode, image.mode)
        if is_cut(raw):
            kind = "16-bit colour, of which 8 bits are read"
        elif "X" in raw or image.mode == "RGBX":
            kind = "4 channels, of which 3 are read" if raw in ("RGBX", "BGRX") else "another number of channels"
        # A PNG would be decoded in search of more; Pillow turns a TIFF by itself.
        turn = orientation(image) if "exif" in image.info and image.format != "TIFF" else 1
        return kind, getattr(image, "n_frames", 1) if image.format == "TIFF" else 1, turn, image.size


def overlaps(checked: Sequence[Findings]) -> list[str]:
    """Images of the training split that other splits hold too, by their pixels, and groups of several splits."""
    found = []
    for train in (each for each in checked if each.split in ("train", "trainaug")):
        for other in (each for each in checked if not each.split.startswith("train")):
            same = sorted(train.contents.keys() & other.contents.keys(), key=lambda key: other.contents[key])
            if same:
                examples = ", ".join(f"{train.contents[key]} = {other.contents[key]}" for key in same[:_EXAMPLES])
                images = counted(len(same), f"image of {other.split} is", f"images of {other.split} are")
                effect = f"which inflates the score of {other.split}"
                found.append(f"{images} also in {train.split}, {effect}: {examples}")
    names = {each.split: each.dataset.names for each in checked}
    if checked and (divided := groups_of(checked[0].dataset).divided(names)):
        found.append(divided_groups(divided))
    return found
