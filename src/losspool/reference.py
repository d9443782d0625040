"""Algorithm 1 of the paper: sort, walk, stop. Float64, for tests and benchmarks only.

It follows the algorithm box, which is correct for p > 1, with three deviations:

- The running sum a_i = Σ ℓ^q is kept as its logarithm, because near p = 1 the plain sum overflows or
  underflows even in float64. For 1 < p < 1.001 this version loses digits too: it sees each loss only as q
  times a rounded logarithm.
- At p = 1 it takes the limit p → 1: α* is the ⌈m⌉-th largest loss (the box takes the (m+1)-th for an integer
  m), losses equal to α* share alike, and zero losses get no weight. The value is the same.
- For p = ∞ and m = n it returns the uniform weights at once, with α* = 0.

``docs/derivation.md`` gives the reasons, and lists the slips in the paper's text.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Reference(NamedTuple):
    value: float
    weights: Tensor  # float64, in the order of the input losses
    alpha: float
    tau: float


def pool(losses: Tensor, *, p: float, m: float) -> Reference:
    """Pool one set of valid, finite, non-negative losses. ``m`` is a number of pixels in [1, n]."""
    losses = losses.detach().double().flatten()
    n = losses.numel()
    if n == 0:
        return Reference(0.0, losses, 0.0, 0.0)
    if p == math.inf or m >= n:
        return Reference(float(losses.mean()), torch.full_like(losses, 1 / n), 0.0, 1 / n)
    tau = n ** (1 / p - 1) * m ** (-1 / p)
    alpha, below = (_walk if p > 1 else _select)(losses, p, m)
    weights = tau * torch.where(losses > alpha, 1.0, below)
    saturated = losses[losses > alpha]
    value = tau * (float(saturated.sum()) + (m - saturated.numel()) * alpha)
    return Reference(value, weights, alpha, tau)


def _walk(losses: Tensor, p: float, m: float) -> tuple[float, Tensor]:
    """Return α* for p > 1, and the factors (ℓ/α*)^(q-1) of the unsaturated losses."""
    n, q = losses.numel(), p / (p - 1)
    largest = losses.max()
    if largest == 0:
        return 0.0, torch.zeros_like(losses)
    z = q * (losses.sort().values / largest).log()  # q·log ℓ, up to a constant
    log_a = z.logcumsumexp(0)
    c = m - n + torch.arange(1, n + 1, dtype=torch.float64)
    rising = (c > 0) & (c.clamp(min=0).log() + z > log_a)  # η_i > 0
    stop = int(rising.int().argmax()) if rising.any() else n
    # stop is the number of losses below J*; the paper's a_{i-1} and c_{i-1} are the values after `stop` losses.
    log_t = float(log_a[stop - 1] - c[stop - 1].log()) if stop else -math.inf
    alpha = float(largest) * math.exp(log_t / q)
    if alpha == 0:
        return 0.0, torch.zeros_like(losses)
    return alpha, ((q - 1) * (losses / alpha).log()).exp().clamp(max=1.0)


def _select(losses: Tensor, p: float, m: float) -> tuple[float, Tensor]:
    """Return v, the ⌈m⌉-th largest loss, for p = 1. Losses equal to v split the weight that larger ones leave."""
    v = losses.sort(descending=True).values[math.ceil(m) - 1]
    left = (m - int((losses > v).sum())) / int((losses == v).sum())
    return float(v), ((losses == v) & (v > 0)).double() * left
