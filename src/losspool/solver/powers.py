"""Exponents and powers shared by all searches: q from p, and (ℓ/u)^q without overflow."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Stands for q = ∞, at p = 1. Every power of a ratio below one underflows to zero and 1^q is one, which is
# the limit p → 1. Unlike ∞, it gives zero when multiplied by zero.
INFINITE_Q = 1e30


def conjugate_exponent(p: float) -> float:
    """Return q = p / (p - 1), or ``INFINITE_Q`` for p = 1."""
    return min(1.0 + 1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q


def weight_exponent(p: float) -> float:
    """Return q - 1 without cancellation."""
    return min(1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q


def is_uniform(p: float) -> bool:
    """Return whether p is ∞, or so large that q rounds to one."""
    return conjugate_exponent(p) == 1.0


def power(ratio: Tensor, q: float) -> Tensor:
    """Compute ratio^q in place for ratio ≤ 1, via logarithms. Zeros become a negligible positive value."""
    if q == INFINITE_Q:  # one stays one, everything else becomes zero
        return torch.ge(ratio, 1.0, out=ratio)
    logs = ratio.clamp_(min=torch.finfo(ratio.dtype).tiny).log2_().mul_(q)
    return logs.clamp_(min=lowest_exponent(ratio.dtype)).exp2_()


def lowest_exponent(dtype: torch.dtype) -> float:
    """Return the exponent below which e^x and 2^x are negligible. Near underflow ``exp`` is ten times slower."""
    return -700.0 if dtype == torch.float64 else -80.0


class Saturated(NamedTuple):
    """What a search finds out about the saturated losses {ℓ > θ} of each pool; all fields have shape ``(R,)``."""

    room: Tensor  # m minus their number
    sum: Tensor  # their sum, relative to the largest loss of the pool
    largest: Tensor  # u, the largest other loss; 0 if every positive loss is saturated
    total: Tensor  # Σ_{ℓ ≤ θ} (ℓ/u)^q
