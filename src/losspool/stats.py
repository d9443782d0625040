"""Statistics of one pooling call, for inspection and logging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from losspool.solver import host

UNFILLED: Any = None


@dataclass(eq=False)
class PoolingStats:
    """Statistics that a call fills in when passed as ``stats=``.

    All tensors are detached. Before the call, every field is None. Collecting them does not solve
    the pooling a second time.

    A *pool* is one image for ``scope="image"`` and the whole batch otherwise. ``B`` below is the
    number of pools. An image without valid pixels has ``valid``, ``tau`` and ``alpha`` equal to 0.

    Example:
        >>> import torch, losspool
        >>> stats = losspool.PoolingStats()
        >>> loss = losspool.max_pool(torch.tensor([[4.0, 1.0, 1.0, 0.0]]), p=1.3, m=2, stats=stats)
        >>> stats.saturated.tolist()
        [1]
    """

    alpha: Tensor = UNFILLED
    """(B,), float64, or float32 on devices without it: α*. Losses above it are saturated; 0 if every positive loss is
    saturated. At p = 1 it is the ⌈m⌉-th largest loss, the limit p → 1; for an integer m the paper has the (m+1)-th."""
    tau: Tensor = UNFILLED
    """(B,), as ``alpha``: τ, the upper bound on a weight."""
    valid: Tensor = UNFILLED
    """(B,), int64: n, the number of valid pixels that are not trimmed."""
    saturated: Tensor = UNFILLED
    """(B,), int64: number of pixels with weight τ. With ``scope="global"``, pixels of this rank only."""
    weights: Tensor = UNFILLED
    """w* in the shape of the target or losses; 0 for void and trimmed pixels. Weights are per pool: they do not
    include the average over images that ``scope="image"`` takes."""
    prediction: Tensor = UNFILLED
    """Arg-max class in the shape of the labels, int64; None for calls that take losses or binary targets."""
    trimmed: Tensor = UNFILLED
    """(B,), int64: number of trimmed pixels. With ``scope="global"``, pixels of this rank only."""


def class_mass(weights: Tensor, target: Tensor, classes: int) -> Tensor:
    """(C,), float64 where the device has it: the sum of the weights (B, ...) of each class.

    ``target`` holds class indices in the shape of ``weights`` or with an axis of size 1; any other number is void. Or
    it holds class probabilities (B, C, ...), which split a pixel's weight. The host does not wait for the device.
    """
    wide = host.wide_dtype(weights)
    if target.numel() != weights.numel():
        return (target.to(wide) * weights.to(wide).unsqueeze(1)).transpose(0, 1).flatten(1).sum(1)
    flat = target.flatten().long()
    mass = torch.zeros(classes + 1, dtype=wide, device=weights.device)
    place = torch.where((flat >= 0) & (flat < classes), flat, classes)  # void pixels: an extra class, which is dropped
    return mass.index_add_(0, place, weights.flatten().to(wide))[:-1]
