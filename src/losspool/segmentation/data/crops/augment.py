"""Augmented crops: cut first, then scale, recolour, rotate and flip, so that only pixels of the crop are processed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.data.crops.photometric import NUMBERS, recoloured
from losspool.segmentation.data.protocol import IGNORE, Pixels

Recolour = Callable[[Image.Image], Image.Image]

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
    photometric: float = 0.0
    """Strength of random changes of brightness, contrast, saturation, hue and sharpness, from 0 to 1."""
    grey: float = 0.0
    """Probability of a grey image."""
    rotate: float = 0.0
    """Largest rotation in degrees, to either side; the angle is drawn uniformly."""
    turns: bool = False
    """Turn crops by 0, 90, 180 or 270 degrees. With flips, these are all eight orientations."""


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
        return self.in_source(first), self.in_source(last)

    def in_source(self, at: Any) -> Any:
        """Return the source coordinate of an output coordinate, or of an array of them."""
        return self.origin + at / self.scale

    def of_source(self, at: float) -> float:
        """Return the output coordinate of a source coordinate."""
        return (at - self.origin) * self.scale

    def widened(self, first: int, last: int) -> _Axis:
        """Return the axis of the output pixels from ``first`` to ``last``, which may lie outside of this one."""
        return replace(self, origin=self.in_source(first), size=last - first)


def crop(
    image: Image.Image, label: Pixels, augmentation: Augmentation, seed: int, aim: tuple[int, int] | None = None
) -> tuple[Pixels, Pixels]:
    """Crop an image and its label, determined by ``seed`` alone. With ``aim`` (row, column), include that pixel.

    The aimed pixel falls on the centre of an output pixel, so its label survives at every scale, even
    for a pole one pixel wide. The image is resampled with antialiasing, the label by nearest
    neighbour. Outside the source the label is void. A rotation turns the crop around the aimed pixel, or
    around its own centre.
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    scale, down, right, mirror = random.random(4)
    # Always drawn, so that a setting does not change what the others do.
    turn, angle, *chances = random.random(2 + NUMBERS).tolist()
    turns = int(4 * turn) if augmentation.turns else 0
    low, high = augmentation.scale
    zoom = low + (high - low) * scale
    aims = aim or (None, None)
    height, width = augmentation.crop if turns % 2 == 0 else augmentation.crop[::-1]
    rows = _placed(label.shape[0], height, zoom, down, aims[0])
    columns = _placed(label.shape[1], width, zoom, right, aims[1])

    def recolour(part: Image.Image) -> Image.Image:
        return recoloured(part, augmentation.photometric, augmentation.grey, chances)

    if augmentation.rotate:
        radians = math.radians(augmentation.rotate * (2 * angle - 1))
        cut_image, cut_label = _rotated(image, label, rows, columns, radians, aim, recolour)
    else:
        cut_image, cut_label = _resampled_image(image, rows, columns, recolour), _resampled_label(label, rows, columns)
    # A view is enough: stacking crops into a batch copies them anyway.
    cut_image, cut_label = np.rot90(cut_image, turns), np.rot90(cut_label, turns)
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


def _rotated(
    image: Image.Image,
    label: Pixels,
    rows: _Axis,
    columns: _Axis,
    angle: float,
    aim: tuple[int, int] | None,
    recolour: Recolour,
) -> tuple[Pixels, Pixels]:
    """Rotate a crop around the aimed pixel or its centre.

    The image is scaled upright first, with antialiasing, as far as the rotated crop reaches; then it is rotated. The
    label is looked up in the source at once: two nearest neighbours in a row would lose thin things.
    """
    cosine, sine = math.cos(angle), math.sin(angle)
    size = np.array([rows.size, columns.size])
    centre = size / 2
    if aim is not None:
        centre = np.array([axis.of_source(at + 0.5) for axis, at in zip((rows, columns), aim, strict=True)])
    # Output pixel q is at centre + turn · (q - centre) of the upright crop.
    turn = np.array([[cosine, -sine], [sine, cosine]])
    corners = centre + (np.array([[0, 0], [0, 1], [1, 0], [1, 1]]) * size - centre) @ turn.T
    first, last = np.floor(corners.min(0)).astype(int), np.ceil(corners.max(0)).astype(int)
    wide_rows, wide_columns = (
        axis.widened(int(low), int(high)) for axis, low, high in zip((rows, columns), first, last, strict=True)
    )
    upright = Image.fromarray(_resampled_image(image, wide_rows, wide_columns, recolour, edge=True))
    offset = centre - turn @ centre
    # Pillow's order is x, y.
    affine = (cosine, sine, offset[1] - first[1], -sine, cosine, offset[0] - first[0])
    cut = np.array(
        upright.transform((columns.size, rows.size), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    )
    down, right = np.ogrid[0.5 : rows.size, 0.5 : columns.size]
    y = np.floor(rows.in_source(cosine * down - sine * right + offset[0])).astype(np.intp)
    x = np.floor(columns.in_source(sine * down + cosine * right + offset[1])).astype(np.intp)
    outside = (y < 0) | (y >= rows.extent) | (x < 0) | (x >= columns.extent)
    labels = label[y.clip(0, rows.extent - 1), x.clip(0, columns.extent - 1)]
    labels[outside], cut[outside] = IGNORE, PADDING
    return cut, labels


def _resampled_image(image: Image.Image, rows: _Axis, columns: _Axis, recolour: Recolour, edge: bool = False) -> Pixels:
    """The image in the crop. Around it is padding, or with ``edge`` its border repeated."""
    (top, bottom), (left, right) = rows.inside, columns.inside
    padding = np.full((rows.size, columns.size, 3), PADDING, np.uint8)
    if top >= bottom or left >= right:  # a sliver between the centres of output pixels
        return padding
    (upper, lower), (first, last) = rows.box(), columns.box()
    source, y, x = _extended(image, (upper, lower), (first, last))
    box = (first - x, upper - y, last - x, lower - y)
    part = np.asarray(recolour(source.resize((right - left, bottom - top), Image.Resampling.BILINEAR, box)))
    if part.shape == padding.shape:
        return part
    if edge:
        margins = ((top, rows.size - bottom), (left, columns.size - right), (0, 0))
        return np.pad(part, margins, mode="edge")
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
