"""Read logits in blocks of pixels, from a full-size tensor or by upsampling a coarse one.

A block holds the logits (b, C, n) of n pixels in b images, in the working dtype. A thread takes its
blocks one after the other through the same buffer: allocating memory for each would cost more than
the arithmetic, because the operating system clears it every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool.solver import host

# Logits per block: 4 MiB of float32 on CPUs, the fastest size we measured, and 256 MiB on accelerators.
_CPU_BLOCK = 1 << 20
_ACCELERATOR_BLOCK = 1 << 26
# Upsampled images are divided into at most this many jobs. Each holds a gradient of its own.
_JOBS = 16


class Place(NamedTuple):
    """The images and pixels of a block. ``rows`` is the range of image rows, set by ``CoarseLogits`` only."""

    images: slice
    pixels: slice
    rows: tuple[int, int] = (0, 0)


class Part(NamedTuple):
    """The memory of a job's part of the gradient. ``first`` is its first row, set by ``CoarseLogits`` only."""

    gradient: Tensor
    first: int = 0


class Buffer:
    """Memory for one block, allocated when it is first needed."""

    def __init__(self, logits: Tensor, size: int) -> None:
        self._size, self._device, self._memory = size, logits.device, torch.empty(0)
        self.dtype = working_dtype(logits)

    def new(self, shape: Sequence[int]) -> Tensor:
        """Other memory of the same kind."""
        return torch.empty(shape, dtype=self.dtype, device=self._device)

    def view(self, shape: torch.Size, classes_last: bool = False) -> Tensor:
        if not len(self._memory):
            self._memory = self.new([self._size])
        memory = self._memory[: shape.numel()]
        return memory.view(shape[0], shape[2], shape[1]).transpose(1, 2) if classes_last else memory.view(shape)


class FullLogits:
    """Full-size logits (B, C, N)."""

    keeps_sums = True
    """Whether to keep each pixel's Σ exp(logit - peak) for the backward pass."""

    def __init__(self, logits: Tensor) -> None:
        self._logits, self.look = logits, host.host_may_look(logits)
        self.size = logits.numel()
        images, classes, size = logits.shape
        budget = _CPU_BLOCK if self.look else _ACCELERATOR_BLOCK
        self._pixel_step = min(max(budget // classes, 1), max(size, 1))
        self._image_step = min(max(budget // (classes * max(size, 1)), 1), max(images, 1))
        self._classes_last = logits.stride(1) < logits.stride(2)

    def jobs(self) -> list[list[Place]]:
        """Blocks by job. Different jobs never write to the same memory."""
        images, _, size = self._logits.shape
        return [
            [Place(slice(image, image + self._image_step), slice(begin, begin + self._pixel_step))]
            for image in range(0, images, self._image_step)
            for begin in range(0, size, self._pixel_step)
        ]

    def buffer(self) -> Buffer:
        return Buffer(self._logits, self._image_step * self._logits.shape[1] * self._pixel_step)

    def read(
        self, place: Place, buffer: Buffer, part: Part | None = None, *, for_softmax: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return a block, and memory of its shape to compute in: that of the gradient ``part``, if possible."""
        block = self._logits[place.images, :, place.pixels]
        if block.dtype == buffer.dtype and part is not None:
            return block, part.gradient[place.images, :, place.pixels]
        memory = buffer.view(block.shape, self._classes_last)
        return block if block.dtype == buffer.dtype else memory.copy_(block), memory

    def new_gradient(self) -> Tensor:
        return torch.empty_like(self._logits)

    def new_exponentials(self) -> Tensor | None:
        """Return memory that can become the gradient, or None if that has another dtype than the exponentials."""
        return self.new_gradient() if self._logits.dtype == working_dtype(self._logits) else None

    def new_part(self, job: list[Place], gradient: Tensor) -> Part:
        """Return the memory to which a job writes its part of the gradient."""
        return Part(gradient)

    def write(self, place: Place, block: Tensor, part: Part) -> None:
        if block.dtype != part.gradient.dtype:
            part.gradient[place.images, :, place.pixels] = block

    def collect(self, jobs: list[list[Place]], parts: list[Part], gradient: Tensor) -> Tensor:
        """Return the whole gradient, in the dtype of the logits."""
        return gradient


class CoarseLogits:
    """Logits (B, C, h, w), upsampled bilinearly to H×W pixels, one strip of rows at a time.

    Bilinear upsampling is linear and separable. Torch's kernel widens the few coarse rows under a
    strip, then a small matrix turns them into the strip's rows. The gradient takes the reverse
    path: the transposed matrix, then the adjoint of the widening.

    ``cells`` is the number of cells that the image spans in each direction, fractional if its edge
    cuts a cell (default: all h and w). It requires ``align_corners=False``.
    """

    keeps_sums = False  # they would take as much memory as everything else together

    def __init__(
        self,
        logits: Tensor,
        height: int,
        width: int,
        align_corners: bool,
        cells: tuple[float, float] | None = None,
    ) -> None:
        self._logits, self.look = logits, host.host_may_look(logits)
        self._size = (height, width)
        self.size = logits.shape[0] * logits.shape[1] * height * width
        self._align = align_corners
        self._cells = cells or (logits.shape[2], logits.shape[3])
        # Pixels per cell, as torch defines its scale. None lets torch divide, as F.interpolate does.
        self._scales = (None, None) if cells is None else (height / cells[0], width / cells[1])
        self._dtype = working_dtype(logits)
        budget = _CPU_BLOCK if self.look else _ACCELERATOR_BLOCK
        self._row_step = min(max(budget // (logits.shape[1] * width), 1), height)
        self._image_step = min(max(budget // (logits.shape[1] * height * width), 1), max(logits.shape[0], 1))

    @cached_property
    def _rows(self) -> Tensor:
        return self._matrix(0, self._dtype)

    @cached_property
    def _exact_matrices(self) -> tuple[Tensor, Tensor]:
        """The weights of rows and columns, in float64 where the device has it."""
        exact = host.wide_dtype(self._logits)
        return self._matrix(0, exact), self._matrix(1, exact)

    @cached_property
    def _one_job(self) -> bool:
        """Whether one job has all strips. Then it writes to the gradient itself."""
        return len(self.jobs()) == 1

    def jobs(self) -> list[list[Place]]:
        """Strips by job. The jobs of an image share coarse rows, so each has a gradient of its own."""
        height, width = self._size
        strips = -(-height // self._row_step)
        step = -(-strips // _JOBS) * self._row_step
        return [
            [
                Place(slice(image, image + self._image_step), slice(begin * width, end * width), (begin, end))
                for begin in range(first, min(first + step, height), self._row_step)
                for end in [min(begin + self._row_step, height)]
            ]
            for image in range(0, self._logits.shape[0], self._image_step)
            for first in range(0, height, step)
        ]

    def buffer(self) -> Buffer:
        return Buffer(self._logits, self._image_step * self._logits.shape[1] * self._row_step * self._size[1])

    def read(
        self, place: Place, buffer: Buffer, part: Part | None = None, *, for_softmax: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return a strip, twice: there is nothing to keep in its memory.

        A class that is ruled out is -inf. ``for_softmax``, very low is enough: its exponential is 0 all the same.
        """
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        coarse = self._logits[place.images, :, low:high].to(self._dtype)
        if end - begin == self._size[0] and not self.look:  # one launch instead of many
            whole = torch.ops.aten.upsample_bilinear2d(without_infinity(coarse), self._size, self._align, *self._scales)
            if not for_softmax:
                whole.masked_fill_(ruled_out(whole), -math.inf)
            return whole.flatten(2), whole.flatten(2)
        wide = torch.ops.aten.upsample_bilinear2d(
            without_infinity(coarse), (high - low, self._size[1]), self._align, None, self._scales[1]
        )
        rows = self._rows[low:high, begin:end]
        out = buffer.view(torch.Size((*wide.shape[:2], (end - begin) * wide.shape[3])))
        strip = out.unflatten(2, (end - begin, wide.shape[3]))
        if self.look and bool(wide.sum().isfinite()):
            with host.full_precision(wide):
                torch.matmul(rows.T, wide, out=strip)
        else:
            _blend(rows, wide, strip)
        if not for_softmax and (not self.look or bool((coarse == -math.inf).any())):
            strip.masked_fill_(ruled_out(strip), -math.inf)
        return out, out

    def new_gradient(self) -> Tensor:
        return torch.zeros_like(self._logits, dtype=self._dtype)

    def new_exponentials(self) -> None:
        """They would have the size of the image."""

    def new_part(self, job: list[Place], gradient: Tensor) -> Part:
        """Return the memory for the gradient of the coarse rows under a job."""
        if self._one_job:
            return Part(gradient)
        low, high = self._coarse_rows(job[0].rows[0], job[-1].rows[1])
        shape = gradient[job[0].images].shape
        return Part(gradient.new_zeros(*shape[:2], high - low, shape[3]), low)

    def write(self, place: Place, block: Tensor, part: Part) -> None:
        begin, end = place.rows
        low, high = self._coarse_rows(begin, end)
        strip = block.unflatten(2, (end - begin, self._size[1]))
        if self.look:
            rows = self._rows[low:high, begin:end]
            with host.full_precision(strip):
                wide = torch.matmul(rows, strip)  # (b, C, coarse rows, W)
            shape = [*wide.shape[:3], self._logits.shape[3]]
            narrow = torch.ops.aten.upsample_bilinear2d_backward(
                wide, wide.shape[2:], shape, self._align, None, self._scales[1]
            )
        else:  # torch's kernel adds up in any order on GPUs, and float32 products may be TF32
            rows, columns = self._exact_matrices
            with host.full_precision(strip):
                narrow = torch.matmul(torch.matmul(rows[low:high, begin:end], strip.to(rows.dtype)), columns.T)
        part.gradient[:, :, low - part.first : high - part.first].add_(narrow)

    def collect(self, jobs: list[list[Place]], parts: list[Part], gradient: Tensor) -> Tensor:
        """Add up the jobs' parts, always in the same order, and return the gradient in the dtype of the logits."""
        for job, part in zip(jobs, parts, strict=True) if not self._one_job else ():
            rows = slice(part.first, part.first + part.gradient.shape[2])
            gradient[job[0].images, :, rows].add_(part.gradient)
        return gradient.to(self._logits.dtype)

    def _matrix(self, axis: int, dtype: torch.dtype) -> Tensor:
        """Return (coarse, fine) weights: each fine row (axis 0) or column (1) interpolates two coarse ones."""
        coarse, fine = self._logits.shape[2 + axis], self._size[axis]
        identity = torch.eye(coarse, dtype=dtype, device=self._logits.device)
        return torch.ops.aten.upsample_bilinear2d(
            identity.view(1, coarse, coarse, 1), (fine, 1), self._align, self._scales[axis], None
        ).view(coarse, fine)

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
    buffer = source.buffer()
    for job in source.jobs():
        for place in job:
            begin, end = place.rows
            yield slice(begin, end), source.read(place, buffer)[0][0].unflatten(1, (end - begin, size[1]))


def interpolated(logits: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    """Upsample coarse logits (B, C, h, w) as a whole. A class that is ruled out by -inf stays ruled out."""
    full = F.interpolate(without_infinity(logits), size, mode="bilinear", align_corners=align_corners)
    return full.masked_fill(ruled_out(full), -math.inf)


def without_infinity(logits: Tensor) -> Tensor:
    """Replace -inf by a very low finite value, because interpolation would compute 0·(-inf) = NaN."""
    return logits.clamp(min=torch.finfo(logits.dtype).min / 4)


def ruled_out(enlarged: Tensor) -> Tensor:
    """Return where upsampled logits (B, C, …) mix in a former -inf: no other logits are this low.

    Exception: where neighbouring cells together rule out every class, nothing is masked, and the
    interpolation weights decide.
    """
    low = enlarged < torch.finfo(enlarged.dtype).min * 2.0**-40
    return low ^ low.all(1, keepdim=True)


def _blend(rows: Tensor, wide: Tensor, out: Tensor) -> None:
    """Compute ``rows.T @ wide`` from only the two coarse rows of each row, so non-finite values do not spread."""
    first = (rows > 0).to(torch.int8).argmax(0)
    second = (first + 1).clamp(max=rows.shape[0] - 1)
    shares = rows.gather(0, torch.stack([first, second]))  # (2, strip rows)
    torch.mul(wide.index_select(2, first), shares[0].unsqueeze(1), out=out)
    other = wide.index_select(2, second).mul_(shares[1].unsqueeze(1))
    out.add_(torch.where(((shares[1] > 0) & (second > first)).unsqueeze(1), other, 0.0))


def working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32
