"""Read logits in blocks of pixels, from a full-size tensor or by upsampling a coarse one.

A block holds the logits (b, C, n) of n pixels in b images, contiguous and in the working dtype. All
blocks share one buffer: allocating memory for each block would cost more than the arithmetic,
because the operating system clears it every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import host

# Logits per block: 4 MiB of float32 on CPUs, the fastest size we measured, and 256 MiB on accelerators.
_CPU_BLOCK = 1 << 20
_ACCELERATOR_BLOCK = 1 << 26


class Place(NamedTuple):
    """The images and pixels of a block. ``rows`` is the range of image rows, set by ``CoarseLogits`` only."""

    images: slice
    pixels: slice
    rows: tuple[int, int] = (0, 0)


class FullLogits:
    """Full-size logits (B, C, N)."""

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
        """Return the buffer for a block of the gradient: a view of it if it has the working dtype, else scratch."""
        view = gradient[place.images, :, place.pixels]
        return view if view.dtype == self.scratch.dtype else self.scratch.second(view.shape)

    def write(self, place: Place, block: Tensor, gradient: Tensor) -> None:
        view = gradient[place.images, :, place.pixels]
        if block.data_ptr() != view.data_ptr():
            view.copy_(block)


class CoarseLogits:
    """Logits (B, C, h, w), upsampled bilinearly to H×W pixels, one strip of rows at a time.

    Bilinear upsampling is linear and separable. Torch's kernel widens the few coarse rows under a
    strip, then a small matrix turns them into the strip's rows. The gradient takes the reverse
    path: the transposed matrix, then the kernel's own adjoint.

    ``cells`` is the number of cells that the image spans in each direction, fractional if its edge
    cuts a cell (default: all h and w). It requires ``align_corners=False``.
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
        # Pixels per cell, as torch defines its scale. None lets torch divide, as F.interpolate does.
        self._scales = (None, None) if cells is None else (height / cells[0], width / cells[1])
        identity = torch.eye(coarse, dtype=working_dtype(logits), device=logits.device)
        self._rows = torch.ops.aten.upsample_bilinear2d(  # (h, H): each row interpolates two coarse rows
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
            with torch.autocast(wide.device.type, enabled=False):  # autocast would multiply in half precision
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
        with torch.autocast(strip.device.type, enabled=False):  # autocast would multiply in half precision
            wide = torch.matmul(self._rows[low:high, begin:end], strip)  # (b, C, coarse rows, W)
        shape = [*wide.shape[:3], self._logits.shape[3]]
        part = torch.ops.aten.upsample_bilinear2d_backward(
            wide, wide.shape[2:], shape, self._align, None, self._scales[1]
        )
        gradient[place.images, :, low:high].add_(part)

    def _coarse_rows(self, begin: int, end: int) -> tuple[int, int]:
        """Return the range of coarse rows that rows begin…end interpolate, widened for rounding."""
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
    """Upsample logits (1, C, h, w) to ``size`` (H, W) and yield each strip of rows with its logits (C, rows, W).

    The next strip overwrites the previous one. For ``cells`` see :class:`CoarseLogits`.
    """
    source = CoarseLogits(logits, *size, align_corners=False, cells=cells)
    for place in source.places():
        begin, end = place.rows
        yield slice(begin, end), source.read(place)[0].unflatten(1, (end - begin, size[1]))


def without_infinity(logits: Tensor) -> Tensor:
    """Replace -inf by a very low finite value, because interpolation would compute 0·(-inf) = NaN."""
    return logits.clamp(min=torch.finfo(logits.dtype).min / 4)


def ruled_out(enlarged: Tensor) -> Tensor:
    """Return where upsampled logits (B, C, …) mix in a former -inf: no other logits are this low.

    Exception: where neighbouring cells together rule out every class, nothing is masked, and the
    interpolation weights decide.
    """
    low = enlarged < torch.finfo(enlarged.dtype).min * 2.0**-40
    return low & ~low.all(1, keepdim=True)


def _blend(rows: Tensor, wide: Tensor, out: Tensor) -> None:
    """Compute ``rows.T @ wide`` from only the two coarse rows of each row, so non-finite values do not spread."""
    first = (rows > 0).to(torch.int8).argmax(0)
    second = (first + 1).clamp(max=rows.shape[0] - 1)
    shares = rows.gather(0, torch.stack([first, second]))  # (2, strip rows)
    torch.mul(wide.index_select(2, first), shares[0].unsqueeze(1), out=out)
    other = wide.index_select(2, second).mul_(shares[1].unsqueeze(1))
    out.add_(torch.where(((shares[1] > 0) & (second > first)).unsqueeze(1), other, 0.0))


class Scratch:
    """Two buffers, each the size of one block."""

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
