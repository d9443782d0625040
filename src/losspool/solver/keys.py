"""The arithmetic of ``counting.py``: losses as integer keys, and powers of their ratios.

Keys order like the losses, because they hold the exponent and the significand. Void pixels and zero
losses have the key 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losspool.solver.powers import LARGEST_LOG

_TOP = 0x7FEF_FFFF_FFFF_FFFF  # the largest float64


class Keys:
    """Keys from the bits of a float64; for float32 losses, from the bits that a float32 can set."""

    dtype = torch.float64

    def __init__(self, losses: Tensor, q: float) -> None:
        self._losses, self._q = losses.double(), q
        single = losses.dtype != torch.float64
        self._dropped = 29 if single else 0  # trailing bits
        self._before = (874 << 23) - 1 if single else 0  # the smallest positive float32 gets the key 1
        self.bits = 32 if single else 63

    def keys(self, losses: Tensor | None = None) -> Tensor:
        losses = self._losses if losses is None else losses
        return (losses.view(torch.int64) >> self._dropped).sub_(self._before).clamp_(min=0)

    def values(self, keys: Tensor) -> Tensor:
        keys = keys + self._before if self._before else keys.clamp(1, _TOP)  # 0 would be divided by
        return (keys << self._dropped).view(torch.float64)

    def powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for the losses ℓ and u of two keys, at most 2^60."""
        return self.ratio_powers(self.values(keys).div_(self.values(reference)))

    def loss_powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for all losses ℓ, of which ``keys`` are the keys, and for the loss u of ``reference``."""
        return self.ratio_powers(self._losses.clamp(min=0.0).div_(self.values(reference)))

    def ratio_powers(self, ratio: Tensor) -> Tensor:
        """Compute ratio^q in place, at most 2^60."""
        return ratio.log2_().mul_(self._q).clamp_(max=LARGEST_LOG).exp2_()
