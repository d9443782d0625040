"""Colours for classes that name none: VOC's."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

Color = tuple[int, int, int]


def voc_color(index: int) -> Color:
    """Return VOC's colour for a label: the bits of the index, spread over the channels from the highest bit down."""
    red = green = blue = 0
    for place in range(8):
        red |= (index >> 3 * place & 1) << 7 - place
        green |= (index >> 3 * place + 1 & 1) << 7 - place
        blue |= (index >> 3 * place + 2 & 1) << 7 - place
    return red, green, blue


def free_color(taken: Collection[tuple[object, ...]]) -> Color:
    """The first colour of the palette that no class has. Not black, which an overlay would not show."""
    return next(color for index in count(1) if (color := voc_color(index)) not in taken)
