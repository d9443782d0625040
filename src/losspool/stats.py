"""What a pooling call found out, for those who want to see whether it does anything."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(eq=False)
class PoolingStats:
    """Pass one as ``stats=``; the call fills it. Every tensor is detached; nothing is solved twice.

    A *pool* is an image for ``scope="image"``, and the whole batch otherwise; ``B`` below counts
    pools. An image without a valid pixel has ``valid`` 0, ``tau`` 0 and ``alpha`` 0.

    Example:
        >>> import torch, losspool
        >>> stats = losspool.PoolingStats()
        >>> loss = losspool.max_pool(torch.tensor([[4.0, 1.0, 1.0, 0.0]]), p=1.3, m=2, stats=stats)
        >>> stats.saturated.tolist()
        [1]
    """

    alpha: Tensor | None = None
    """(B,), float64: losses above α* are saturated; 0 where every positive loss is."""
    tau: Tensor | None = None
    """(B,), float64: τ, the largest weight there can be."""
    valid: Tensor | None = None
    """(B,), int64: n, the number of valid pixels."""
    saturated: Tensor | None = None
    """(B,), int64: how many pixels have the weight τ. Under ``scope="global"``: of this rank's."""
    weights: Tensor | None = None
    """w* in the shape of the target or losses; 0 where void. Each pool's own: the average over
    images that ``scope="image"`` takes is not in it."""
    prediction: Tensor | None = None
    """The arg-max class in the shape of the target, int64; None where no logits were read."""
