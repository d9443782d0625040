"""Randomness by key, and smooth noise made of it.

Only uniform draws of a counter-based generator, and below only ``+ - * /``, ``sqrt``, ``floor`` and
comparisons: IEEE 754 fixes their results to the last bit, where ``exp``, ``sin`` or a matrix product may
differ with the processor. So a scene has the same bytes everywhere.
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
"""The side of the repeating texture; a power of two, so that wrapping is a mask."""


class Dice:
    """Draws that depend on the key alone; forks with another key are independent of it."""

    def __init__(self, *key: object) -> None:
        self._key = key
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))

    def fork(self, *key: object) -> Dice:
        """Dice of their own for one part of a scene: a change there leaves the other parts alone."""
        return Dice(*self._key, *key)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random()

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int((high - low + 1) * self._rng.random())

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.whole(0, len(items) - 1)]

    def field(self, *shape: int) -> Field:
        """Uniform in [0, 1)."""
        return self._rng.random(shape, dtype=np.float32)

    def grain(self, *shape: int) -> Field:
        """Uniform in [-1, 1] in 256 steps: a third of the time of a field."""
        count = int(np.prod(shape))
        grain: Field = np.frombuffer(self._rng.bytes(count), np.int8).astype(np.float32).reshape(shape)
        grain /= 128
        return grain


def between(grid: Field, down: Places, across: Places) -> Field:
    """(rows, columns): a grid's values at these places, smooth between its nodes, and repeating beyond them."""
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
    """(H, W) in [-1, 1]: random values on a grid of cells, smooth between them."""
    grid = dice.field(cells[0] + 1, cells[1] + 1) * 2 - 1
    down, across = ((np.arange(n) + 0.5) * (many / n) for n, many in zip(size, cells, strict=True))
    return between(grid, down, across)


def fractal_noise(dice: Dice, size: tuple[int, int], cells: tuple[int, int], octaves: int) -> Field:
    """(H, W): smooth noise at several scales, each twice as fine and half as strong as the one before."""
    total = np.zeros(size, np.float32)
    for octave in range(octaves):
        total += smooth_noise(dice, size, (cells[0] << octave, cells[1] << octave)) * 0.5**octave
    return total


@lru_cache(maxsize=1)
def tile() -> Field:
    """(TILE, TILE), about in [-1, 1]: a texture that repeats without a seam, the same for every scene."""
    dice = Dice("streets", "tile")
    total = np.zeros((TILE, TILE), np.float32)
    for cells, strength in ((16, 0.4), (32, 0.35), (64, 0.3), (128, 0.3), (256, 0.35)):
        at = np.arange(TILE) * (cells / TILE)
        total += strength * between(dice.field(cells, cells) * 2 - 1, at, at)
    total.setflags(write=False)
    return total


def surface(dice: Dice, size: tuple[int, int]) -> Field:
    """(H, W) of the repeating texture from a random place on, one cell per pixel."""
    row, column = (np.arange(length) + dice.whole(0, TILE - 1) & (TILE - 1) for length in size)
    return tile().take(row, axis=0).take(column, axis=1)


def texture(across: Field, down: Field) -> Field:
    """The repeating texture at the given places, one cell per unit."""
    column = np.floor(across).astype(np.int32) & (TILE - 1)
    row = np.floor(down).astype(np.int32) & (TILE - 1)
    return tile().ravel().take(row * TILE + column)


def ridge(across: Field, down: Field) -> Field:
    """The repeating texture at the given places, smooth from cell to cell along ``across``."""
    whole = np.floor(across)
    rest = across - whole
    rest = rest * rest * (3 - 2 * rest)
    here = texture(whole, down)
    return here + (texture(whole + 1, down) - here) * rest
