"""An image and its label together."""

from __future__ import annotations

from PIL import Image

from losspool.segmentation.data.protocol import Dataset, Pixels
from losspool.segmentation.errors import BrokenFileError, UserError


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
