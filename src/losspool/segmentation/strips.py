"""Coarse logits at the size of their image, a strip of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from losspool.segmentation.models.deeplab import enlarge

_CPU_STRIP = 1 << 19
"""Logits of a strip: 2 MB stay in the cache, and arg-max is five times as fast there."""
_ACCELERATOR_STRIP = 1 << 24


def strips(coarse: Tensor, size: tuple[int, int], columns: slice) -> Iterator[tuple[slice, Tensor]]:
    """``enlarge(coarse, size)[0, :, :, columns]`` in strips: which rows, and their logits (C, rows, columns).

    Enlargement is linear and separable: the coarse rows are widened once, and the small matrix that
    enlarges a column makes the rows of a strip out of them.
    """
    (height, width), rows = size, coarse.shape[2]
    # A class that is ruled out by -inf stays so, but 0·(-inf) would rule out everything.
    finite = coarse.clamp(min=torch.finfo(coarse.dtype).min / 4)
    wide = enlarge(finite, (rows, width))[0, :, :, columns]  # (C, h, columns)
    identity = torch.eye(rows, dtype=coarse.dtype).view(1, rows, rows, 1)
    matrix = enlarge(identity, (height, 1)).view(rows, height)
    for strip in row_strips(wide, height):
        used = matrix[:, strip].any(1).nonzero()
        first, last = int(used[0]), int(used[-1]) + 1
        blend = matrix[first:last, strip].T.to(coarse.device)
        with torch.autocast(coarse.device.type, enabled=False):  # it would multiply in half precision
            yield strip, torch.matmul(blend, wide[:, first:last])


def row_strips(logits: Tensor, height: int) -> Iterator[slice]:
    """Slices of ``height`` rows as wide as those of ``logits`` (C, …, W), each of a few megabytes."""
    budget = _CPU_STRIP if logits.device.type == "cpu" else _ACCELERATOR_STRIP
    step = max(budget // (logits.shape[0] * logits.shape[-1]), 1)
    for first in range(0, height, step):
        yield slice(first, min(first + step, height))
