"""An image and its label together."""

from __future__ import annotations

from PIL import Image

from losspool.segmentation.data.protocol import Dataset, Pixels
from losspool.segmentation.errors import BrokenFileError


def read_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels]:
    """Image and label; an error with the image's name where their sizes differ."""
    image, label = dataset.image(index), dataset.label(index)
    if (image.height, image.width) != label.shape:
        name = f"{dataset.name}: {dataset.names[index]}"
        rows, columns = label.shape
        raise BrokenFileError(name, f"the image is {image.width}×{image.height}, its label {columns}×{rows}")
    return image, label
