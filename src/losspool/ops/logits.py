"""Logits in blocks of pixels: read from a full-size tensor, or enlarged from a coarse one on the way.

A block is (b, C, n) logits of n pixels of b images in the working dtype. On the CPU blocks fit a
core's cache; elsewhere they are large, and under ``torch.compile`` there is a single one, because
a compiler fuses the whole by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool import _device

# Logits of a block: about what a core's second-level cache holds, and 256 MiB on accelerators.
_CPU_BLOCK = 1 << 18
_ACCELERATOR_BLOCK = 1 << 26


class Place(NamedTuple):
    """A block's images and pixels; ``rows`` are the image rows that the pixels make up, where known."""

    images: slice
    pixels: slice
    rows: tuple[int, int] = (0, 0)


class FullLogits:
    """Logits (B, C, N) as they are."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits

    def places(self) -> Iterator[Place]:
        images, classes, size = self._logits.shape
        if torch.compiler.is_compiling():
            yield Place(slice(None), slice(None))
            return
        budget = _block_budget(self._logits)
        pixel_step = max(budget // classes, 1)
        image_step = max(budget // max(classes * size, 1), 1)
        for image in range(0, images, image_step):
            for begin in range(0, size, pixel_step):
                yield Place(slice(image, image + image_step), slice(begin, begin + pixel_step))

    def read(self, place: Place) -> Tensor:
        return self._logits[place.images, :, place.pixels].to(working_dtype(self._logits))

    def gradient(self) -> Tensor:
        return torch.empty_like(self._logits)

    def write(self, place: Place, block: Tensor, gradient: Tensor) -> None:
        gradient[place.images, :, place.pixels].copy_(block)


class CoarseLogits:
    """Logits (B, C, h, w), enlarged bilinearly to H×W pixels a strip of rows at a time.

    Enlargement is linear and separable: the few coarse rows under a strip are widened by torch's
    own kernel, then a small matrix turns them into the strip's rows. The gradient goes the same
    way back, by the transposed matrix and the kernel's own adjoint.
    """

    def __init__(self, logits: Tensor, height: int, width: int, align_corners: bool) -> None:
        self._logits = logits
        self._size = (height, width)
        self._align = align_corners
        coarse = logits.shape[2]
        identity = torch.eye(coarse, dtype=working_dtype(logits), device=logits.device)
        self._rows = F.interpolate(  # (H, h): each row interpolates between two coarse rows
            identity.view(1, coarse, coarse, 1), (height, 1), mode="bilinear", align_corners=align_corners
        ).view(coarse, height)

    def places(self) -> Iterator[Place]:
        images, classes = self._logits.shape[:2]
        height, width = self._size
        if torch.compiler.is_compiling():
            yield Place(slice(None), slice(None), (0, height))
            return
        step = max(_block_budget(self._logits) // (classes * width), 1)
        for image in range(images):
            for begin in range(0, height, step):
                end = min(begin + step, height)
                yield Place(slice(image, image + 1), slice(begin * width, end * width), (begin, end))

    def read(self, place: Place) -> Tensor:
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        coarse = self._logits[place.images, :, low:high].to(self._rows.dtype)
        wide = F.interpolate(coarse, (high - low, self._size[1]), mode="bilinear", align_corners=self._align)
        return torch.matmul(self._rows[low:high, begin:end].T, wide).flatten(2)

    def gradient(self) -> Tensor:
        return torch.zeros_like(self._logits, dtype=self._rows.dtype)

    def write(self, place: Place, block: Tensor, gradient: Tensor) -> None:
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        strip = block.unflatten(2, (end - begin, self._size[1]))
        wide = torch.matmul(self._rows[low:high, begin:end], strip)  # (b, C, coarse rows, W)
        shape = [*wide.shape[:3], self._logits.shape[3]]
        part = torch.ops.aten.upsample_bilinear2d_backward(wide, wide.shape[2:], shape, self._align, None, None)
        gradient[place.images, :, low:high].add_(part)

    def _coarse_rows(self, begin: int, end: int) -> tuple[int, int]:
        """The coarse rows that rows begin…end interpolate between, and one more for rounding."""
        coarse, height = self._logits.shape[2], self._size[0]
        if self._align:
            scale = (coarse - 1) / (height - 1) if height > 1 else 0.0
            first, last = begin * scale, (end - 1) * scale
        else:
            scale = coarse / height
            first, last = (begin + 0.5) * scale - 0.5, (end - 0.5) * scale - 0.5
        return max(math.floor(first - 1e-3), 0), min(math.floor(last + 1e-3) + 2, coarse)


def working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _block_budget(logits: Tensor) -> int:
    return _CPU_BLOCK if _device.host_may_look(logits) else _ACCELERATOR_BLOCK
