"""Augmented crops: cut first, then scale and flip, so that only the pixels of the crop are processed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.data.protocol import IGNORE, Pixels

PADDING = (124, 116, 104)
"""ImageNet's mean colour, which is about zero after preprocessing."""


@dataclass(frozen=True)
class Augmentation:
    """Settings for augmented crops."""

    crop: tuple[int, int]
    """Height and width of the output."""
    scale: tuple[float, float] = (0.5, 1.5)
    """Smallest and largest scale; the scale is drawn uniformly."""
    flip: bool = True
    """Flip crops horizontally with probability 0.5."""


@dataclass(frozen=True)
class _Axis:
    """One axis of a crop: output pixel j has its centre at ``origin + (j + ½) / scale`` in the source."""

    origin: float
    scale: float
    size: int
    extent: int

    @property
    def inside(self) -> tuple[int, int]:
        """Range of output pixels whose centre lies in the source; the others are padding."""
        first = math.ceil(-self.origin * self.scale - 0.5)
        last = math.ceil((self.extent - self.origin) * self.scale - 0.5)
        return min(max(first, 0), self.size), min(max(last, 0), self.size)

    def nearest(self) -> NDArray[np.intp]:
        """Return the source pixel under each centre inside the source."""
        first, last = self.inside
        below = np.floor(self.origin + (np.arange(first, last) + 0.5) / self.scale).astype(np.intp)
        return below.clip(0, self.extent - 1)  # rounding may move a centre past the border

    def box(self) -> tuple[float, float]:
        """Return the source interval that the inside pixels cover; it may exceed the source by half an output pixel."""
        first, last = self.inside
        return self.origin + first / self.scale, self.origin + last / self.scale


def crop(
    image: Image.Image, label: Pixels, augmentation: Augmentation, seed: int, aim: tuple[int, int] | None = None
) -> tuple[Pixels, Pixels]:
    """Crop an image and its label, determined by ``seed`` alone. With ``aim`` (row, column), include that pixel.

    The aimed pixel falls on the centre of an output pixel, so its label survives at every scale, even
    for a pole one pixel wide. The image is resampled with antialiasing, the label by nearest
    neighbour. Outside the source the label is void.
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    scale, down, right, mirror = random.random(4)
    low, high = augmentation.scale
    zoom = low + (high - low) * scale
    aims = aim or (None, None)
    rows = _placed(label.shape[0], augmentation.crop[0], zoom, down, aims[0])
    columns = _placed(label.shape[1], augmentation.crop[1], zoom, right, aims[1])
    cut_image, cut_label = _resampled_image(image, rows, columns), _resampled_label(label, rows, columns)
    # A view is enough: stacking crops into a batch copies them anyway.
    return (cut_image[:, ::-1], cut_label[:, ::-1]) if augmentation.flip and mirror < 0.5 else (cut_image, cut_label)


def _placed(extent: int, size: int, scale: float, chance: float, aim: int | None) -> _Axis:
    """Place the crop inside the source if it fits, else around it; ``chance`` in [0, 1) selects the position."""
    slack = extent - size / scale
    low, high = min(slack, 0.0), max(slack, 0.0)
    if aim is None:
        return _Axis(low + (high - low) * chance, scale, size, extent)
    # Putting output pixel j on the aimed pixel's centre sets the origin to aim + ½ - (j + ½)/scale. Draw j.
    first = max(math.ceil((aim + 0.5 - high) * scale - 0.5), 0)
    last = min(math.floor((aim + 0.5 - low) * scale - 0.5), size - 1)
    # At a border the grid may miss the range by a fraction of a pixel; then use the nearest j.
    first, last = min(first, size - 1), max(last, 0)
    j = min(first, last) + int(chance * (abs(last - first) + 1))
    return _Axis(aim + 0.5 - (j + 0.5) / scale, scale, size, extent)


def _resampled_label(label: Pixels, rows: _Axis, columns: _Axis) -> Pixels:
    (top, bottom), (left, right) = rows.inside, columns.inside
    out = np.full((rows.size, columns.size), IGNORE, np.uint8)
    out[top:bottom, left:right] = label[rows.nearest()][:, columns.nearest()]
    return out


def _resampled_image(image: Image.Image, rows: _Axis, columns: _Axis) -> Pixels:
    (top, bottom), (left, right) = rows.inside, columns.inside
    padding = np.full((rows.size, columns.size, 3), PADDING, np.uint8)
    if top >= bottom or left >= right:  # a sliver between the centres of output pixels
        return padding
    (upper, lower), (first, last) = rows.box(), columns.box()
    source, y, x = _extended(image, (upper, lower), (first, last))
    box = (first - x, upper - y, last - x, lower - y)
    part = np.asarray(source.resize((right - left, bottom - top), Image.Resampling.BILINEAR, box))
    if part.shape == padding.shape:
        return part
    padding[top:bottom, left:right] = part
    return padding


def _extended(
    image: Image.Image, vertical: tuple[float, float], horizontal: tuple[float, float]
) -> tuple[Image.Image, int, int]:
    """Return an image that contains the whole box, and its top and left; borders are padded by repetition."""
    top, bottom = math.floor(vertical[0]), math.ceil(vertical[1])
    left, right = math.floor(horizontal[0]), math.ceil(horizontal[1])
    margins = ((max(-top, 0), max(bottom - image.height, 0)), (max(-left, 0), max(right - image.width, 0)), (0, 0))
    if not any(map(any, margins)):
        return image, 0, 0
    part = image.crop((max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)))
    return Image.fromarray(np.pad(np.asarray(part), margins, mode="edge")), top, left
