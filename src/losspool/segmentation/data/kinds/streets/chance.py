"""Keyed random numbers, and smooth noise derived from them.

Scenes are identical to the byte on every machine. They use only uniform draws from a counter-based
generator, ``+ - * /``, ``sqrt``, ``floor`` and comparisons. IEEE 754 defines these to the last bit, whereas
``exp``, ``sin`` and matrix products may differ between processors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Places = NDArray[np.floating[Any]]
Item = TypeVar("Item")

TILE = 256
"""Side of the repeating texture; a power of two, so that wrapping is a bit mask."""


class Dice:
    """Random draws that depend only on the key. Forks are independent of it."""

    def __init__(self, *key: object) -> None:
        self._key = key
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))

    def fork(self, *key: object) -> Dice:
        """Return independent dice for one part of a scene, so that changing it leaves other parts unchanged."""
        return Dice(*self._key, *key)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random()

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def whole(self, low: int, high: int) -> int:
        """Draw an integer in [low, high], both ends included."""
        return low + int((high - low + 1) * self._rng.random())

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.whole(0, len(items) - 1)]

    def field(self, *shape: int) -> Field:
        """Draw uniform values in [0, 1)."""
        return self._rng.random(shape, dtype=np.float32)

    def grain(self, *shape: int) -> Field:
        """Draw uniform values in [-1, 1) in 256 steps; takes a third of the time of :meth:`field`."""
        count = int(np.prod(shape))
        grain: Field = np.frombuffer(self._rng.bytes(count), np.int8).astype(np.float32).reshape(shape)
        grain /= 128
        return grain


def between(grid: Field, down: Places, across: Places) -> Field:
    """Interpolate a grid smoothly at the given positions (rows, columns), repeating it beyond its ends."""
    row, row_share = _split(down, grid.shape[0])
    column, column_share = _split(across, grid.shape[1])
    rows = grid[row] + (grid[(row + 1) % grid.shape[0]] - grid[row]) * row_share[:, None]  # (rows, nodes)
    left = rows.take(column, axis=1)
    return left + (rows.take((column + 1) % grid.shape[1], axis=1) - left) * column_share


def _split(at: Places, nodes: int) -> tuple[NDArray[np.intp], Field]:
    whole = np.floor(at)
    rest = at - whole
    return whole.astype(np.intp) % nodes, (rest * rest * (3 - 2 * rest)).astype(np.float32)


def smooth_noise(dice: Dice, size: tuple[int, int], cells: tuple[int, int]) -> Field:
    """Return (H, W) noise in [-1, 1]: random values on a grid of cells, interpolated smoothly."""
    grid = dice.field(cells[0] + 1, cells[1] + 1) * 2 - 1
    down, across = ((np.arange(n) + 0.5) * (many / n) for n, many in zip(size, cells, strict=True))
    return between(grid, down, across)


def fractal_noise(dice: Dice, size: tuple[int, int], cells: tuple[int, int], octaves: int) -> Field:
    """Return (H, W) noise summed over octaves, each twice as fine and half as strong as the previous one."""
    total = np.zeros(size, np.float32)
    for octave in range(octaves):
        total += smooth_noise(dice, size, (cells[0] << octave, cells[1] << octave)) * 0.5**octave
    return total


@lru_cache(maxsize=1)
def tile() -> Field:
    """Return a seamless texture (TILE, TILE), roughly in [-1, 1], shared by all scenes."""
    dice = Dice("streets", "tile")
    total = np.zeros((TILE, TILE), np.float32)
    for cells, strength in ((16, 0.4), (32, 0.35), (64, 0.3), (128, 0.3), (256, 0.35)):
        at = np.arange(TILE) * (cells / TILE)
        total += strength * between(dice.field(cells, cells) * 2 - 1, at, at)
    total.setflags(write=False)
    return total


def surface(dice: Dice, size: tuple[int, int]) -> Field:
    """Return an (H, W) window of the repeating texture at a random offset, one cell per pixel."""
    row, column = (np.arange(length) + dice.whole(0, TILE - 1) & (TILE - 1) for length in size)
    return tile().take(row, axis=0).take(column, axis=1)


def texture(across: Field, down: Field) -> Field:
    """Sample the repeating texture at the given positions, one cell per unit."""
    column = np.floor(across).astype(np.int32) & (TILE - 1)
    row = np.floor(down).astype(np.int32) & (TILE - 1)
    return tile().ravel().take(row * TILE + column)


def ridge(across: Field, down: Field) -> Field:
    """Sample the repeating texture at the given positions, interpolated along ``across``."""
    whole = np.floor(across)
    rest = across - whole
    rest = rest * rest * (3 - 2 * rest)
    here = texture(whole, down)
    return here + (texture(whole + 1, down) - here) * rest
