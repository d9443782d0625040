"""What the searches on CPUs need to know of a pool: its pixels, its positive losses, and its largest loss."""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Losses per block. The temporaries of one block fit in a core's cache; smaller blocks cost more calls.
_BLOCK = 1 << 17


class Survey(NamedTuple):
    """What a search needs to know of one pool before it begins."""

    valid: float
    positives: float
    top: float  # the largest loss; NaN if one is


def column_blocks(losses: Tensor) -> list[Tensor]:
    """Split the losses into cache-sized blocks of columns; at least one."""
    rows, size = losses.shape
    step = max(_BLOCK // max(rows, 1), 256)
    return [losses] if size <= step else list(losses.split(step, 1))


def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Return one number per pool as a tensor (R, 1): several times faster than ``torch.tensor``."""
    return torch.frombuffer(array("d" if dtype == torch.float64 else "f", values), dtype=dtype).unsqueeze(1)


def take_survey(losses: Tensor) -> list[Survey]:
    """Count the valid pixels and the positive losses of each pool, and find its largest loss."""
    rows, size = losses.shape
    void, others, tops = [0.0] * rows, [0.0] * rows, [0.0] * rows
    blocks = column_blocks(losses)
    flags = torch.empty_like(blocks[0])
    for block in blocks:
        # Each is far quicker than `aminmax`. NaN if one is.
        lowest, highest = block.amin(1).tolist(), block.amax(1).tolist()
        tops = [top if top >= other or top != top else other for top, other in zip(tops, highest, strict=True)]
        flag = flags[:, : block.shape[1]]
        if not all(low > 0 for low in lowest):  # else all are positive
            others = list(map(operator.add, others, torch.le(block, 0.0, out=flag).sum(1).tolist()))
        if not all(low >= 0 for low in lowest):
            void = list(map(operator.add, void, torch.lt(block, 0.0, out=flag).sum(1).tolist()))
    return [Survey(size - void[row], size - others[row], tops[row]) for row in range(rows)]


def sum_above(losses: Tensor, theta: Tensor, units: list[float]) -> list[float]:
    """Return Σ_{ℓ > θ} ℓ/unit for each pool; ``theta`` has shape (R, 1)."""
    sums = [0.0] * len(units)
    for block in column_blocks(losses):
        above = torch.gt(block, theta, out=torch.empty_like(block)).mul_(block)
        parts = above.sum(1).tolist()
        if not math.isfinite(sum(parts)):  # too large for a float32
            parts = above.sum(1, dtype=torch.float64).tolist()
        sums = list(map(operator.add, sums, parts))
    return [total / unit for total, unit in zip(sums, units, strict=True)]
