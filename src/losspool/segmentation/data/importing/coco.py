"""COCO's annotations: polygons and run-length masks of objects become label images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short  # file contents may be arbitrarily long
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import BrokenFileError, UserError, read_json
from losspool.segmentation.data.files.file_dataset import walk
from losspool.segmentation.data.importing.class_lists import BACKGROUND
from losspool.segmentation.data.importing.layouts import split_of, words

_MOST_FILES = 50
"""More JSON files than this are not COCO's, which has one per split."""


@dataclass(frozen=True)
class CocoImage:
    """An image and its objects."""

    path: Path
    """The place beside the annotations if there is no such file."""
    height: int
    width: int
    split: str | None
    objects: tuple[tuple[int, Any], ...]
    """Category and segmentation, the largest first: what is small stays visible."""
    source: Path
    """The JSON file."""


@dataclass(frozen=True)
class CocoSource:
    """The annotations below a folder."""

    files: tuple[Path, ...]
    classes: tuple[tuple[str, int], ...]
    """Name and label value; background comes first."""
    images: tuple[CocoImage, ...]
    shapeless: int = 0
    """Objects without a segmentation, which are left out."""


def find_coco(source: Path) -> CocoSource | None:
    """Read every COCO file below the folder; None if there is none."""
    candidates = sorted(path for path in source.rglob("*.json") if not path.name.startswith("."))
    files = {path: content for path in candidates[:_MOST_FILES] if (content := _content(path)) is not None}
    if not files or len(candidates) > _MOST_FILES:
        return None
    instances = {path: content for path, content in files.items() if "instances" in words(path.stem)}
    files = instances or files  # COCO's own download has captions and keypoints of the same images, too
    values, classes = _classes(files)
    known: dict[str, list[Path]] = {}
    for path in walk(source):
        known.setdefault(path.name, []).append(path)
    images = [image for path, content in files.items() for image in _images(path, content, values, known)]
    return CocoSource(tuple(files), classes, tuple(images), _without_shapes(files))


def _without_shapes(files: dict[Path, dict[str, Any]]) -> int:
    """How many objects are boxes alone; raises if all are."""
    objects = [entry for content in files.values() for entry in content["annotations"] if isinstance(entry, dict)]
    boxes = sum(not _has_shape(entry) for entry in objects)
    if objects and boxes == len(objects):
        raise UserError(
            f"{next(iter(files))}: none of {boxes} annotations has a segmentation; boxes alone say nothing about pixels"
        )
    return boxes


def _has_shape(entry: dict[str, Any]) -> bool:
    found = entry.get("segmentation")
    return found is not None and found not in ([], [[]])


def damaged_json(source: Path) -> UserError | None:
    """The first JSON file below a folder that cannot be read."""
    for path in sorted(source.rglob("*.json"))[:_MOST_FILES]:
        try:
            read_json(path)
        except UserError as error:
            return error
    return None


def _content(path: Path) -> dict[str, Any] | None:
    try:
        content = read_json(path)
    except UserError:
        return None
    keys = ("images", "annotations", "categories")
    return content if all(isinstance(content.get(key), list) for key in keys) else None


def _classes(files: dict[Path, dict[str, Any]]) -> tuple[dict[int, int], tuple[tuple[str, int], ...]]:
    """The label value of each category id, and the classes. The values are the ids, if 0 is free for background."""
    names: dict[int, str] = {}
    for path, content in files.items():
        for entry in content["categories"]:
            number, name = _field(path, "categories", entry, "id", int), _field(path, "categories", entry, "name", str)
            if names.setdefault(number, name) != name:
                raise UserError(f"{path}: category {number} is {name!r} here, {names[number]!r} in another file")
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise UserError(f"{next(iter(files))}: two categories have the name {twice[0]!r}")
    fit = all(0 < number < 255 for number in names)
    values = {number: number if fit else place for place, number in enumerate(sorted(names), 1)}
    classes = [(BACKGROUND, 0), *((names[number], value) for number, value in values.items())]
    if BACKGROUND in names.values():  # the file's own one, which objects may have
        own = next(number for number, name in names.items() if name == BACKGROUND)
        classes.remove((BACKGROUND, values[own]))
        values[own] = 0
    return values, tuple(classes)


def _images(
    path: Path, content: dict[str, Any], values: dict[int, int], known: dict[str, list[Path]]
) -> Iterable[CocoImage]:
    objects: dict[int, list[tuple[float, int, Any]]] = {}
    for entry in content["annotations"]:
        category = _field(path, "annotations", entry, "category_id", int)
        if category not in values:
            raise UserError(f"{path}: an annotation names category {category}, which is not in 'categories'")
        image = _field(path, "annotations", entry, "image_id", int)
        if not _has_shape(entry):
            continue
        area = entry.get("area")
        found = (float(area) if isinstance(area, int | float) else 0.0, values[category], entry.get("segmentation"))
        objects.setdefault(image, []).append(found)
    split = split_of(path.stem) or split_of(path.parent.name)
    for entry in content["images"]:
        name = _field(path, "images", entry, "file_name", str)
        height, width = (_field(path, "images", entry, key, int) for key in ("height", "width"))
        some = sorted(objects.get(_field(path, "images", entry, "id", int), []), key=lambda each: -each[0])
        pairs = tuple((value, segmentation) for _, value, segmentation in some)
        yield CocoImage(_located(path, name, split, known), height, width, split, pairs, path)


def _located(source: Path, name: str, split: str | None, known: dict[str, list[Path]]) -> Path:
    """The file of an image: beside the annotations by its whole name, else by its last part below the source."""
    beside = source.parent / name
    candidates = known.get(Path(name).name, [])
    if beside in candidates:
        return beside
    same = [path for path in candidates if path.as_posix().endswith(f"/{name}")] or candidates
    if len(same) > 1 and split:
        same = [path for path in same if split in map(split_of, path.parts)]
    if len(same) > 1:
        raise UserError(f"{source}: more than one image is called {name!r}: {same[0]} and {same[1]}")
    return same[0] if same else beside  # its absence is a fault when it is read


def _field(path: Path, where: str, entry: Any, key: str, kind: type) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        words = {int: "a whole number", str: "text"}[kind]
        raise UserError(f"{path}: an entry of {where!r} must have {words} under {key!r}, got {short(entry)}")
    return value


def rasterised(image: CocoImage) -> NDArray[np.uint8]:
    """The label values (H, W) of an image: 0 where no object lies."""
    canvas = np.zeros((image.height, image.width), np.uint8)
    for value, segmentation in image.objects:
        try:
            canvas[_mask(segmentation, image.height, image.width)] = value
        except (TypeError, ValueError, KeyError, IndexError):
            problem = f"the segmentation of an object of {image.path.name} is neither polygons nor run lengths"
            raise BrokenFileError(image.source, f"{problem}, got {short(segmentation)}") from None
    return canvas


def _mask(segmentation: Any, height: int, width: int) -> NDArray[np.bool_]:
    if isinstance(segmentation, dict):
        return _decoded(segmentation, height, width)
    mask = np.zeros((height, width), bool)
    for polygon in segmentation:
        _fill(mask, np.asarray(polygon, float).reshape(-1, 2))
    return mask


def _fill(mask: NDArray[np.bool_], corners: NDArray[np.float64]) -> None:
    """Set the pixels whose centre lies in a polygon. (Pillow's polygons have a border of their own.)"""
    (x, y), (next_x, next_y) = corners.T, np.roll(corners, -1, axis=0).T
    first, last = max(math.floor(y.min()), 0), min(math.ceil(y.max()), len(mask))
    for row in range(first, last):
        crossing = (y <= row + 0.5) != (next_y <= row + 0.5)
        along = (row + 0.5 - y[crossing]) / (next_y - y)[crossing]
        borders = np.sort(x[crossing] + along * (next_x - x)[crossing])
        columns = np.ceil(borders - 0.5).clip(0, mask.shape[1]).astype(int).tolist()
        for begin, end in zip(columns[::2], columns[1::2], strict=True):
            mask[row, begin:end] = True


def _decoded(mask: dict[str, Any], height: int, width: int) -> NDArray[np.bool_]:
    """Run lengths of 0 and 1 in turn, down the columns."""
    counts = mask["counts"]
    runs = _unpacked(counts) if isinstance(counts, str) else [int(run) for run in counts]
    if sum(runs) != height * width or min(runs, default=0) < 0:
        raise ValueError("the runs do not fill the image")
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return flat.reshape(width, height).T


def _unpacked(text: str) -> Sequence[int]:
    """COCO's compressed counts: groups of five bits, the lowest first; from the third on, differences to two before."""
    runs: list[int] = []
    place = value = 0
    for letter in text:
        bits = ord(letter) - 48
        value |= (bits & 31) << place
        place += 5
        if not bits & 32:
            value -= 1 << place if bits & 16 else 0  # the sign
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            place = value = 0
    return runs
