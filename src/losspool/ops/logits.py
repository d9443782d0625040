"""Logits in blocks of pixels: read from a full-size tensor, or enlarged from a coarse one on the way.

A block is (b, C, n) logits of n pixels of b images, contiguous and in the working dtype. Every
block is read into the same buffer: memory that is taken and given back for each of them costs
more than the arithmetic, because the operating system clears it every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import host

# Logits of a block: 4 MiB of float32, the best of what was tried on CPUs, and 256 MiB on accelerators.
_CPU_BLOCK = 1 << 20
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
        images, classes, size = logits.shape
        budget = _block_budget(logits)
        self._pixel_step = min(max(budget // classes, 1), max(size, 1))
        self._image_step = min(max(budget // (classes * max(size, 1)), 1), max(images, 1))
        self.scratch = Scratch(logits, self._image_step * classes * self._pixel_step)

    def places(self) -> Iterator[Place]:
        images, _, size = self._logits.shape
        for image in range(0, images, self._image_step):
            for begin in range(0, size, self._pixel_step):
                yield Place(slice(image, image + self._image_step), slice(begin, begin + self._pixel_step))

    def read(self, place: Place) -> Tensor:
        block = self._logits[place.images, :, place.pixels]
        return self.scratch.first(block.shape).copy_(block)

    def gradient(self) -> Tensor:
        return torch.empty_like(self._logits)

    def destination(self, place: Place, gradient: Tensor) -> Tensor:
        """Where to compute a block of the gradient: in place of it, if it has the working dtype."""
        view = gradient[place.images, :, place.pixels]
        return view if view.dtype == self.scratch.dtype else self.scratch.second(view.shape)

    def write(self, place: Place, block: Tensor, gradient: Tensor) -> None:
        view = gradient[place.images, :, place.pixels]
        if block.data_ptr() != view.data_ptr():
            view.copy_(block)


class CoarseLogits:
    """Logits (B, C, h, w), enlarged bilinearly to H×W pixels a strip of rows at a time.

    Enlargement is linear and separable: the few coarse rows under a strip are widened by torch's
    own kernel, then a small matrix turns them into the strip's rows. The gradient goes the same
    way back, by the transposed matrix and the kernel's own adjoint.

    ``cells`` says how many of the h and w cells the image spans, a fraction where its edge cuts one;
    all of them if None. Corners are not aligned then.
    """

    def __init__(
        self,
        logits: Tensor,
        height: int,
        width: int,
        align_corners: bool,
        cells: tuple[float, float] | None = None,
    ) -> None:
        self._logits = logits
        self._size = (height, width)
        self._align = align_corners
        coarse = logits.shape[2]
        self._cells = cells or (coarse, logits.shape[3])
        # Torch's pixels per cell. None, its own division, is what F.interpolate passes too.
        self._scales = (None, None) if cells is None else (height / cells[0], width / cells[1])
        identity = torch.eye(coarse, dtype=working_dtype(logits), device=logits.device)
        self._rows = torch.ops.aten.upsample_bilinear2d(  # (h, H): each row interpolates between two coarse ones
            identity.view(1, coarse, coarse, 1), (height, 1), align_corners, self._scales[0], None
        ).view(coarse, height)
        classes = logits.shape[1]
        self._row_step = min(max(_block_budget(logits) // (classes * width), 1), height)
        self.scratch = Scratch(logits, classes * self._row_step * width)

    def places(self) -> Iterator[Place]:
        height, width = self._size
        for image in range(self._logits.shape[0]):
            for begin in range(0, height, self._row_step):
                end = min(begin + self._row_step, height)
                yield Place(slice(image, image + 1), slice(begin * width, end * width), (begin, end))

    def read(self, place: Place) -> Tensor:
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        coarse = self._logits[place.images, :, low:high].to(self._rows.dtype)
        wide = torch.ops.aten.upsample_bilinear2d(
            without_infinity(coarse), (high - low, self._size[1]), self._align, None, self._scales[1]
        )
        rows = self._rows[low:high, begin:end]
        out = self.scratch.first(torch.Size((*wide.shape[:2], end - begin, wide.shape[3])))
        if host.host_may_look(wide) and bool(wide.sum().isfinite()):
            with torch.autocast(wide.device.type, enabled=False):  # it would multiply in half precision
                torch.matmul(rows.T, wide, out=out)
        else:
            _blend(rows, wide, out)
        if not host.host_may_look(coarse) or bool((coarse == -math.inf).any()):
            out.masked_fill_(ruled_out(out), -math.inf)
        return out.flatten(2)

    def gradient(self) -> Tensor:
        return torch.zeros_like(self._logits, dtype=self._rows.dtype)

    def destination(self, place: Place, gradient: Tensor) -> Tensor:
        begin, end = place.rows
        return self.scratch.second(torch.Size((1, gradient.shape[1], (end - begin) * self._size[1])))

    def write(self, place: Place, block: Tensor, gradient: Tensor) -> None:
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        strip = block.unflatten(2, (end - begin, self._size[1]))
        with torch.autocast(strip.device.type, enabled=False):  # it would multiply in half precision
            wide = torch.matmul(self._rows[low:high, begin:end], strip)  # (b, C, coarse rows, W)
        shape = [*wide.shape[:3], self._logits.shape[3]]
        part = torch.ops.aten.upsample_bilinear2d_backward(
            wide, wide.shape[2:], shape, self._align, None, self._scales[1]
        )
        gradient[place.images, :, low:high].add_(part)

    def _coarse_rows(self, begin: int, end: int) -> tuple[int, int]:
        """The coarse rows that rows begin…end interpolate between, and one more for rounding."""
        coarse, height = self._logits.shape[2], self._size[0]
        if self._align:
            scale = (coarse - 1) / (height - 1) if height > 1 else 0.0
            first, last = begin * scale, (end - 1) * scale
        else:
            scale = self._cells[0] / height
            first, last = (begin + 0.5) * scale - 0.5, (end - 0.5) * scale - 0.5
        return max(math.floor(first - 1e-3), 0), min(math.floor(last + 1e-3) + 2, coarse)


def enlarged_strips(
    logits: Tensor, size: tuple[int, int], cells: tuple[float, float] | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Logits (1, C, h, w) enlarged to the size (H, W): strips of rows, and their logits (C, rows, W).

    A strip is overwritten by the next one. ``cells``: see :class:`CoarseLogits`.
    """
    source = CoarseLogits(logits, *size, align_corners=False, cells=cells)
    for place in source.places():
        begin, end = place.rows
        yield slice(begin, end), source.read(place)[0].unflatten(1, (end - begin, size[1]))


def without_infinity(logits: Tensor) -> Tensor:
    """For an enlargement: 0·(-inf), of a class that is ruled out somewhere else, would be NaN."""
    return logits.clamp(min=torch.finfo(logits.dtype).min / 4)


def ruled_out(enlarged: Tensor) -> Tensor:
    """Where -inf was in logits (B, C, …), under whatever share of a pixel: no others are so low.

    Not between cells that leave no class over together, of which each has some: there the shares decide.
    """
    low = enlarged < torch.finfo(enlarged.dtype).min * 2.0**-40
    return low & ~low.all(1, keepdim=True)


def _blend(rows: Tensor, wide: Tensor, out: Tensor) -> None:
    """``rows.T @ wide`` by the two coarse rows of each row alone: what is not finite stays where it is."""
    first = (rows > 0).to(torch.int8).argmax(0)
    second = (first + 1).clamp(max=rows.shape[0] - 1)
    shares = rows.gather(0, torch.stack([first, second]))  # (2, strip rows)
    torch.mul(wide.index_select(2, first), shares[0].unsqueeze(1), out=out)
    other = wide.index_select(2, second).mul_(shares[1].unsqueeze(1))
    out.add_(torch.where(((shares[1] > 0) & (second > first)).unsqueeze(1), other, 0.0))


class Scratch:
    """Two buffers of one block each."""

    def __init__(self, logits: Tensor, size: int) -> None:
        self.dtype = working_dtype(logits)
        self._buffers = torch.empty(2, size, dtype=self.dtype, device=logits.device)

    def first(self, shape: torch.Size) -> Tensor:
        return self._buffers[0, : shape.numel()].view(shape)

    def second(self, shape: torch.Size) -> Tensor:
        return self._buffers[1, : shape.numel()].view(shape)


def working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _block_budget(logits: Tensor) -> int:
    return _CPU_BLOCK if host.host_may_look(logits) else _ACCELERATOR_BLOCK
