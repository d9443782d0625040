"""Coarse logits at the size of their image, a strip of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.ops.logits import without_infinity

_CPU_STRIP = 1 << 19
"""Logits of a strip: 2 MB stay in the cache, and arg-max is five times as fast there."""
_ACCELERATOR_STRIP = 1 << 24


def strips(
    coarse: Tensor,
    size: tuple[int, int],
    columns: slice,
    *,
    cells: tuple[float, float] | None = None,
    flip: bool = False,
) -> Iterator[tuple[slice, Tensor]]:
    """Logits (1, C, h, w) enlarged bilinearly, in strips: which rows, and their logits (C, rows, columns).

    Args:
        coarse: the network's.
        size: the image's height and width.
        columns: those that are wanted.
        cells: how many of the h and w the image has, a fraction where its edge cuts one; all if not given. With those
            of :func:`losspool.segmentation.models.enlarge`, this is the same.
        flip: whether the network saw the image mirrored.
    """
    (height, width), (down, across) = size, cells or coarse.shape[2:]
    places = torch.arange(width)
    shares = _shares((places.flip(0) if flip else places)[columns], across / width, coarse)
    low, high, share = (each.to(coarse.device) for each in shares)
    finite = without_infinity(coarse)[0]
    wide = finite[:, :, low].lerp_(finite[:, :, high], share)  # (C, h, columns)
    low, high, share = _shares(torch.arange(height), down / height, coarse.transpose(2, 3))
    for strip in row_strips(wide, height):
        first, last = int(low[strip.start]), int(high[strip.stop - 1]) + 1
        blend = torch.zeros(strip.stop - strip.start, last - first, dtype=coarse.dtype)
        blend.scatter_(1, (low[strip] - first)[:, None], (1 - share[strip])[:, None])
        blend.scatter_add_(1, (high[strip] - first)[:, None], share[strip][:, None])
        with torch.autocast(coarse.device.type, enabled=False):  # it would multiply in half precision
            yield strip, torch.matmul(blend.to(coarse.device), wide[:, first:last])


class _Shares(NamedTuple):
    """Of each pixel the two cells between whose middles it lies, and the share of the second."""

    low: Tensor
    high: Tensor
    share: Tensor


def _shares(pixels: Tensor, step: float, coarse: Tensor) -> _Shares:
    """Along the last dimension of ``coarse``, ``step`` cells a pixel; beyond the middle of the outermost this alone."""
    last = coarse.shape[-1] - 1
    places = ((pixels.double() + 0.5) * step - 0.5).clamp(0, last)
    low = places.long()
    return _Shares(low, (low + 1).clamp(max=last), (places - low).to(coarse.dtype))


def row_strips(logits: Tensor, height: int) -> Iterator[slice]:
    """Slices of ``height`` rows as wide as those of ``logits`` (C, …, W), each of a few megabytes."""
    budget = _CPU_STRIP if logits.device.type == "cpu" else _ACCELERATOR_STRIP
    step = max(budget // (logits.shape[0] * logits.shape[-1]), 1)
    for first in range(0, height, step):
        yield slice(first, min(first + step, height))
