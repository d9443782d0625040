"""An image and its label together."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError, say
from losspool.segmentation.data.protocol.dataset import Dataset, Pixels


def read_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels]:
    """Image and label; an error with the image's name where their sizes differ."""
    image, label = dataset.image(index), dataset.label(index)
    if (image.height, image.width) != label.shape:
        name = f"{dataset.name}: {dataset.names[index]}"
        rows, columns = label.shape
        raise BrokenFileError(name, f"the image is {image.width}×{image.height}, its label {columns}×{rows}")
    return image, label


def try_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels] | BrokenFileError:
    """Image and label, or what is wrong with them."""
    try:
        return read_pair(dataset, index)
    except BrokenFileError as error:
        return error


def read_next_pair(dataset: Dataset, index: int) -> tuple[int, Image.Image, Pixels, list[BrokenFileError]]:
    """The first pair that can be read, of ``index`` and those after it, all the way round; and what is wrong before."""
    broken: list[BrokenFileError] = []
    for offset in range(len(dataset)):
        at = (index + offset) % len(dataset)
        pair = try_pair(dataset, at)
        if not isinstance(pair, BrokenFileError):
            return at, *pair, broken
        broken.append(pair)
    raise UserError(f"{dataset.name}: not one image can be read; {broken[0]}")


Skip = Callable[[BrokenFileError], None]
"""What hears of a broken file that is left out. Where there is none, the file is an error."""


class WarnOnce:
    """Says what is wrong with each file, once."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._told: set[str] = set()

    def __call__(self, error: BrokenFileError) -> None:
        if not self._silent and str(error) not in self._told:
            self._told.add(str(error))
            say(f"skipped: {error}")
