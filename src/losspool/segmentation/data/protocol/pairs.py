"""Read an image together with its label."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError, say
from losspool.segmentation.data.protocol.dataset import Dataset, HasFiles, Pixels


def read_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels]:
    """Return an image and its label. Raises an error that names both files if their sizes differ."""
    image, label = dataset.image(index), dataset.label(index)
    if (image.height, image.width) != label.shape:
        rows, columns = label.shape
        pair = dataset.pairs[index] if isinstance(dataset, HasFiles) else None
        name = f"{dataset.name}: {dataset.names[index]}" if pair is None else pair.image
        where = "" if pair is None else f" ({pair.label})"
        raise BrokenFileError(name, f"the image is {image.width}×{image.height}, its label {columns}×{rows}{where}")
    return image, label


def try_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels] | BrokenFileError:
    """Return an image and its label, or the error if either is broken."""
    try:
        return read_pair(dataset, index)
    except BrokenFileError as error:
        return error


def read_next_pair(dataset: Dataset, index: int) -> tuple[int, Image.Image, Pixels, list[BrokenFileError]]:
    """Return the first readable pair from ``index`` on, wrapping around, and the errors of the pairs skipped."""
    broken: list[BrokenFileError] = []
    for offset in range(len(dataset)):
        at = (index + offset) % len(dataset)
        pair = try_pair(dataset, at)
        if not isinstance(pair, BrokenFileError):
            return at, *pair, broken
        broken.append(pair)
    raise UserError(f"{dataset.name}: no image can be read; {broken[0]}")


Skip = Callable[[BrokenFileError], None]
"""Callback for a broken file that is skipped. Without one, a broken file raises."""


class WarnOnce:
    """Reports each broken file once."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._reported: set[str] = set()

    def __call__(self, *errors: BrokenFileError) -> None:
        for error in errors:
            if not self._silent and str(error) not in self._reported:
                self._reported.add(str(error))
                say(f"skipped: {error}")
