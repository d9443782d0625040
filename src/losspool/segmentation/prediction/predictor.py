"""Predicts whole images with a trained network, tile by tile and strip by strip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from losspool.ops import enlarged_strips
from losspool.segmentation.base import UserError
from losspool.segmentation.config import TILINGS, EvaluateConfig
from losspool.segmentation.data import Pixels
from losspool.segmentation.models import Preprocessing

_ROWS = 64
"""Rows of averaged probabilities per arg-max, few enough to stay in the cache."""


class Predictor:
    """Predicts images of any size. It never holds more than one tile's logits at full resolution.

    Args:
        network: maps images (B, 3, H, W) to logits (B, C, h, w); a module in evaluation mode on ``device``.
        preprocessing: the network's preprocessing.
        stride: pixels per logit cell; None if unknown, then the logits are taken to span the whole image.
        zoom: the scale of images in training.
        config: tiling, scales and flip.
        device: the device to compute on.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Any],
        preprocessing: Preprocessing,
        *,
        stride: int | None = None,
        zoom: float = 1.0,
        config: EvaluateConfig | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._network = network
        self._preprocessing = preprocessing
        self._stride = stride
        self._zoom = zoom
        self._config = config or EvaluateConfig()
        self.device = torch.device(device)

    @property
    def single_pass(self) -> bool:
        """Whether an image takes a single forward pass, untiled and at the training scale."""
        return self._config.tiling == "none" and self._config.scales == (1.0,) and not self._config.flip

    @torch.no_grad()
    def __call__(self, image: Image.Image) -> Pixels:
        """(H, W): the label of every pixel."""
        out = np.empty((image.height, image.width), np.uint8)
        for tile in tiles(image.width, self._config.tiling):
            labels = self._labels(image.crop((tile.left, 0, tile.right, image.height)))
            out[:, tile.first : tile.last] = labels[:, tile.first - tile.left : tile.last - tile.left]
        return out

    @torch.no_grad()
    def logits(self, image: Image.Image) -> Tensor:
        """(1, C, H, W): the logits of the whole image from one pass."""
        return torch.cat([logits.clone() for _, logits in self._strips(image)], 1)[None]

    def _labels(self, part: Image.Image) -> Pixels:
        """(H, W): the labels of a tile. A separate function, so that a tile's memory is freed before the next."""
        out = np.empty((part.height, part.width), np.uint8)
        for rows, scores in self._scores(part):
            # max() instead of argmax(), which takes four times as long on a CPU.
            out[rows] = scores.max(0).indices.to(torch.uint8).cpu().numpy()  # (C, rows, W) -> (rows, W)
        return out

    def _scores(self, part: Image.Image) -> Iterator[tuple[slice, Tensor]]:
        """Yield strips of rows with their logits (C, rows, W); with several passes, the sum of their probabilities."""
        flips = (False, True) if self._config.flip else (False,)
        passes = [(scale, flip) for scale in self._config.scales for flip in flips]
        if len(passes) == 1:
            yield from self._strips(part, *passes[0])
            return
        total: Tensor | None = None
        for scale, flip in passes:
            for rows, logits in self._strips(part, scale, flip):
                if total is None:
                    total = logits.new_zeros(logits.shape[0], part.height, part.width)
                total[:, rows] += logits.softmax(0)
        assert total is not None
        for first in range(0, part.height, _ROWS):
            yield slice(first, first + _ROWS), total[:, first : first + _ROWS]

    def _strips(self, part: Image.Image, scale: float = 1.0, flip: bool = False) -> Iterator[tuple[slice, Tensor]]:
        """Run one pass. Yields strips of rows with their logits (C, rows, W)."""
        coarse, cells = self._pass(part, scale, flip)
        for rows, logits in enlarged_strips(coarse, (part.height, part.width), cells):
            yield rows, logits.flip(2) if flip else logits

    def _pass(self, part: Image.Image, scale: float, flip: bool) -> tuple[Tensor, tuple[float, float] | None]:
        """Coarse logits (1, C, h, w), and the number of their cells that the part spans."""
        zoom = scale * self._zoom
        if zoom != 1:
            resized = (max(round(part.width * zoom), 1), max(round(part.height * zoom), 1))
            part = part.resize(resized, Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(part)).to(self.device)  # (H, W, 3)
        if flip:
            pixels = pixels.flip(1)
        # As one long row: an image three pixels high could be mistaken for channels-first.
        ready = self._preprocessing.apply(pixels.reshape(1, 1, -1, 3)).view(1, 3, part.height, part.width)
        coarse = self._network(ready)
        assert isinstance(coarse, Tensor)
        cells = None if self._stride is None else (part.height / self._stride, part.width / self._stride)
        return coarse.float(), cells


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
