"""Write images and labels of a source in the layout of ``folder``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from losspool.segmentation.base import BrokenFileError, UserError, in_threads, writing
from losspool.segmentation.data.files.images import open_image, orientation, read_values, upright
from losspool.segmentation.data.importing.class_lists import ClassList, Nearest
from losspool.segmentation.data.importing.coco import CocoImage, rasterised
from losspool.segmentation.data.protocol import IGNORE

_TURNED = (5, 6, 7, 8)  # EXIF orientations that exchange height and width


@dataclass(frozen=True)
class Item:
    """An image to import."""

    name: str
    image: Path
    label: Path | CocoImage | None
    split: str | None = None


@dataclass(frozen=True)
class Unknown:
    """Pixels of a label that no class is near enough to, and the first of them."""

    path: Path
    pixels: int
    value: str
    row: int
    column: int


def label_values(item: Item, palette: bool = False) -> NDArray[np.unsignedinteger]:
    """The values or colours of an item's label; with ``palette``, the colours of a palette image."""
    assert item.label is not None
    return rasterised(item.label) if isinstance(item.label, CocoImage) else read_values(item.label, True, palette)


@dataclass(frozen=True)
class Converted:
    """An image that was written."""

    item: Item
    split: str
    orientation: int
    turned: bool = False
    assumed: bool = False
    """Whether nothing shows that the label was drawn on the upright image, or on the stored pixels."""
    pixels: NDArray[np.int64] | None = None
    unknown: Unknown | None = None


class Converter:
    """Writes images and labels to a folder; called in threads."""

    def __init__(self, folder: Path, classes: ClassList, tolerance: float, copy: bool, stored: bool | None) -> None:
        """``stored``: whether labels were drawn on the stored pixels, where the sizes do not show it; None: unknown."""
        self._folder, self._copy, self._stored = folder, copy, stored
        self._nearest, self._by_color = Nearest(classes, tolerance), classes.by_color
        ids = np.zeros(256, np.uint16)
        ids[: len(classes.classes)] = [each.id for each in classes.classes]
        ids[IGNORE] = classes.void
        self._ids = ids if ids.max() > 255 else ids.astype(np.uint8)

    def __call__(self, item: Item, split: str) -> Converted | UserError:
        try:
            turn, size = _orientation_and_size(item.image)
            done = Converted(item, split, turn) if item.label is None else self._labelled(item, split, turn, size)
            _place(item.image, self._folder / "images" / split / f"{item.name}{item.image.suffix.lower()}", self._copy)
            return done
        except UserError as error:
            return error

    def _labelled(self, item: Item, split: str, turn: int, size: tuple[int, int]) -> Converted:
        values = label_values(item, self._by_color)
        shown = _shows_turn(turn, size)
        turned = values.shape[:2] == size if shown else turn != 1 and bool(self._stored)
        if turned:
            values = np.asarray(upright(Image.fromarray(values), turn))
        (height, width), found = size[::-1] if turn in _TURNED else size, values.shape[:2]
        if found != (height, width):
            problem = f"the image is {width}×{height}, its label {_label_file(item)} {found[1]}×{found[0]}"
            raise BrokenFileError(item.image, problem)
        try:
            label, beyond = self._nearest(values)
        except ValueError as error:
            raise BrokenFileError(_label_file(item), str(error)) from None
        assumed = turn != 1 and not shown and self._stored is None
        _save(self._ids[label], self._folder / "labels" / split / f"{item.name}.png", turn != 1 and not assumed)
        pixels = np.bincount(label.ravel(), minlength=256)
        return Converted(item, split, turn, turned, assumed, pixels, _unknown(item, values, beyond))


def _orientation_and_size(path: Path) -> tuple[int, tuple[int, int]]:
    """The EXIF orientation that reading applies, and (height, width) as stored."""
    with open_image(path) as image:
        image.load()  # a damaged image is found here; Pillow turns a TIFF by itself
        return orientation(image), (image.height, image.width)


def _shows_turn(turn: int, size: tuple[int, int]) -> bool:
    """Whether the size of a label shows if it was drawn on the upright image or on the stored pixels."""
    return turn in _TURNED and size[0] != size[1]


def drawn_on_stored(items: Sequence[Item]) -> bool | None:
    """Whether the labels whose size shows it were drawn on the stored pixels; None if none shows it, or they differ."""

    def shown(item: Item) -> bool | None:
        try:
            turn, size = _orientation_and_size(item.image)
            if not _shows_turn(turn, size) or item.label is None:
                return None
            label = item.label
            return (
                (label.height, label.width) if isinstance(label, CocoImage) else label_values(item).shape[:2]
            ) == size
        except UserError:
            return None

    found = {each for each in in_threads(shown, [item for item in items if _may_turn(item.image)]) if each is not None}
    return found.pop() if len(found) == 1 else None


def _may_turn(path: Path) -> bool:
    try:
        with open_image(path) as image:
            return "exif" in image.info
    except UserError:
        return False


def _label_file(item: Item) -> Path:
    assert item.label is not None
    return item.label.source if isinstance(item.label, CocoImage) else item.label


def _unknown(item: Item, values: NDArray[np.unsignedinteger], beyond: NDArray[np.bool_]) -> Unknown | None:
    if not beyond.any():
        return None
    row, column = (int(place) for place in np.unravel_index(int(beyond.argmax()), beyond.shape))
    return Unknown(_label_file(item), int(beyond.sum()), str(values[row, column].tolist()), row, column)


def _save(label: NDArray[np.unsignedinteger], path: Path, upright: bool) -> None:
    """Write a label; one that is known to be upright, though its image is not, says so in its EXIF data."""
    exif = Image.Exif()
    if upright:
        exif[ExifTags.Base.Orientation] = 1
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(label).save(path, exif=exif)


def _place(image: Path, target: Path, copy: bool) -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copyfile(image, target)
        else:
            os.symlink(image.resolve(), target)
