"""Predicts whole images with a trained network, tile by tile and strip by strip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from losspool.ops import enlarged_strips
from losspool.segmentation.config import EvaluateConfig
from losspool.segmentation.data import Pixels
from losspool.segmentation.models import Preprocessing
from losspool.segmentation.prediction.tiling import tiles

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
