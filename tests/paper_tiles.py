"""The paper's tilings, written down column by column: slow, and the truth of the tests."""

import math
from itertools import pairwise


def rectangles(width: int, tiling: str) -> list[tuple[int, int]]:
    """First and last column (exclusive) of each tile."""
    if tiling == "none":
        return [(0, width)]
    if tiling == "efficient":
        cuts = [round(place * width / 5) for place in range(6)]
        return [(left, right) for left, right in pairwise(cuts) if left < right]
    size = math.ceil((width + 800) / 5)
    if size >= width:
        return [(0, width)]
    found = []
    for number in range(5):
        left = number * (size - 200)
        left -= max(left + size - width, 0)  # five rounded tiles reach too far
        if (left, left + size) not in found:
            found.append((left, left + size))
    return found


def deciding_tile(column: int, tiles: list[tuple[int, int]]) -> int:
    """Walk from the left: a tile decides until the middle of its overlap with the next one."""
    current = 0
    while current + 1 < len(tiles):
        begin, end = tiles[current + 1][0], tiles[current][1]
        if column + 0.5 < (begin + end) / 2:  # the middle of the pixel lies in the first half
            break
        current += 1
    return current
