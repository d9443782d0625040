"""Search for the saturated losses by sorting: for small pools on CPUs.

A cumulative sum over the sorted losses gives the sign of η at each of them, as in Algorithm 1 of
the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losspool.solver.powers import INFINITE_Q, Saturated

# Losses that exactly fill the room must not fail by a rounding error.
_TOLERANCE = 1e-12
# Logarithms of powers below _LOWEST are cut off. Where u itself is close to that, sums of logarithms are taken.
_LOWEST, _LOW = -600.0, -500.0
LARGEST_Q = 1e6
"""Beyond it, q times a rounded logarithm loses too many digits (but q = ∞ is fine: it needs no logarithms)."""


def search(losses: Tensor, pixels: list[float], solvable: list[bool], q: float) -> Saturated:
    """Find the saturated losses of each pool. ``pixels`` is m; in a pool that is not solvable all positive ones are."""
    ascending = losses.double().clamp(min=0.0).sort(1).values  # (R, N)
    size = ascending.shape[1]
    top = ascending[:, -1:]
    unit = torch.where(top > 0, top, 1.0)
    rank = torch.arange(size, dtype=torch.float64)
    room = (torch.tensor(pixels, dtype=torch.float64) - (size - 1.0)).unsqueeze(1) + rank  # m minus the larger losses
    if q == INFINITE_Q:
        total = rank + 1.0 - torch.searchsorted(ascending, ascending)
        logs = torch.zeros_like(total)
    else:
        logs = (ascending / unit).log_().mul_(q)
        powers = logs.clamp(min=_LOWEST).exp_()
        total = powers.cumsum(1).div_(powers)  # Σ (ℓ/u)^q over the losses up to each loss u
    last = _last_that_fills(ascending, total, room, solvable)
    if q != INFINITE_Q and bool((logs.gather(1, last.clamp(min=0)) < _LOW).any()):
        logs = ascending.clamp(min=torch.finfo(torch.float64).tiny).log_().mul_(q)
        total = (logs.logcumsumexp(1) - logs).exp_()
        last = _last_that_fills(ascending, total, room, solvable)
    at = last.clamp(min=0)
    facts = torch.stack([room, ascending, total]).gather(2, at.expand(3, -1, -1)).squeeze(2)
    none = (last < 0).squeeze(1)
    return Saturated(
        room=torch.where(none, facts[0] - 1.0, facts[0]),
        sum=torch.where(rank > last, ascending, 0.0).sum(1) / unit.squeeze(1),
        largest=torch.where(none, 0.0, facts[1]),
        total=facts[2],
    )


def _last_that_fills(ascending: Tensor, total: Tensor, room: Tensor, solvable: list[bool]) -> Tensor:
    """Return the index (R, 1) of u, the largest loss with η ≤ 0; -1 if all losses are positive and saturated.

    η ≤ 0 at a loss if the losses up to it fill the room that the larger ones leave. If this holds at
    a loss, it holds at all smaller ones. Equal losses have equal η.
    """
    fills = total >= room * (1.0 - _TOLERANCE)
    if not all(solvable):
        fills &= torch.tensor(solvable, dtype=torch.bool).unsqueeze(1)
    return (fills | (ascending <= 0)).sum(1, keepdim=True) - 1
