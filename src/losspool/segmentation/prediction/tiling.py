"""The paper's tilings of wide images, and which tile each column is predicted by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from losspool.segmentation.base import UserError
from losspool.segmentation.config import TILINGS

COUNT = 5
OVERLAP = 200


@dataclass(frozen=True)
class Tile:
    """Columns ``left … right`` are predicted together; columns ``first … last`` are kept."""

    left: int
    right: int
    first: int
    last: int


def tiles(width: int, tiling: str) -> list[Tile]:
    """Full-height tiles whose kept columns partition the image.

    ``none``: one tile. ``efficient``: five tiles side by side. ``optimized``: five equal tiles of ⌈(W + 800)/5⌉
    columns that overlap by 200; the left tile keeps the first half of an overlap, the right tile the second. Images
    that are too narrow for five tiles get fewer.

    >>> [(tile.left, tile.right, tile.first, tile.last) for tile in tiles(2048, "optimized")][-2:]
    [(1110, 1680, 1210, 1579), (1478, 2048, 1579, 2048)]
    """
    if tiling == "none":
        return [Tile(0, width, 0, width)]
    if tiling == "efficient":
        edges = sorted({round(place * width / COUNT) for place in range(COUNT + 1)})
        return [Tile(left, right, left, right) for left, right in pairwise(edges)]
    if tiling == "optimized":
        size = min(math.ceil((width + (COUNT - 1) * OVERLAP) / COUNT), width)
        # Rounding up makes the tiles extend up to four columns too far, so the last ones move left.
        starts = sorted({max(min(place * (size - OVERLAP), width - size), 0) for place in range(COUNT)})
        halves = [(right + left + size) // 2 for left, right in pairwise(starts)]
        kept = pairwise([0, *halves, width])
        return [Tile(start, start + size, *columns) for start, columns in zip(starts, kept, strict=True)]
    raise UserError(f"tiling must be one of {', '.join(TILINGS)}, got {tiling!r}")
