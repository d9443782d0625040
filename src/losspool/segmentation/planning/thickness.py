"""How thick the things of a class are, in pixels. Geometry of labels alone; ``plan.py`` draws conclusions from it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.data import ClassIndex, Dataset, Pixels

_IMAGES = 12  # per class


def thickness(dataset: Dataset, index: ClassIndex) -> NDArray[np.float64]:
    """(C,): the median thickness of each class at the positions of the class index; NaN for a class without pixels.

    The thickness at a pixel is the shortest of the four straight runs of its class through it: along the row, the
    column and both diagonals. A pole is as thick as it is wide, however high it is.
    """
    found: list[list[float]] = [[] for _ in dataset.classes]
    wanted: dict[int, list[int]] = {}
    for label in range(len(found)):
        images = index.images_with(label)
        for image in images[np.linspace(0, len(images) - 1, min(len(images), _IMAGES)).round().astype(int)].tolist():
            wanted.setdefault(image, []).append(label)
    for image, labels in sorted(wanted.items()):
        try:
            pixels = dataset.label(image)
        except BrokenFileError:
            continue
        for label in labels:
            found[label] += [_at(pixels, row, column) for row, column in index.positions_of(image, label).tolist()]
    return np.array([np.median(some) if some else math.nan for some in found])


def _at(pixels: Pixels, row: int, column: int) -> float:
    """The thickness of what lies at a pixel."""
    mirrored, width = pixels[:, ::-1], pixels.shape[1]
    lines = (
        (pixels[row], column, 1.0),
        (pixels[:, column], row, 1.0),
        (np.diagonal(pixels, column - row), min(row, column), math.sqrt(2)),
        (np.diagonal(mirrored, width - 1 - column - row), min(row, width - 1 - column), math.sqrt(2)),
    )
    return min(_run(line == pixels[row, column], at) * step for line, at, step in lines)


def _run(inside: NDArray[np.bool_], at: int) -> int:
    """The length of the run of True around a place."""
    ends = np.flatnonzero(~inside)
    place = int(np.searchsorted(ends, at))
    first = int(ends[place - 1]) + 1 if place else 0
    return (int(ends[place]) if place < len(ends) else len(inside)) - first
