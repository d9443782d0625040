"""Search for the saturated losses by sorting: for small pools on CPUs, and for devices that have no kernel.

A running sum over the sorted losses gives the sign of η at each of them, as in Algorithm 1 of the paper.
Powers are relative to A, the smallest loss at which the larger ones leave room: (ℓ/A)^q. No power that matters
then under- or overflows. Sums take powers that are cut off at 2^60: there η is positive (docs/derivation.md,
"Sorting"). The number of operations is fixed, and no value is read by the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losspool.solver import host
from losspool.solver.powers import (
    LARGEST_LOG,
    Saturated,
    Searched,
    conjugate_exponent,
    is_uniform,
    pixel_numbers,
    relative_powers,
    running_sums,
    smallest,
)

LARGEST_Q = 1e6
"""Beyond it, q times a rounded logarithm loses too many digits (but q = ∞ is fine)."""


def search(losses: Tensor, *, p: float, m: float, share: bool) -> Searched:
    """Find the saturated losses of each pool. ``m`` is a fraction of the valid pixels if ``share``, else a number."""
    wide, size = host.wide_dtype(losses), losses.shape[1]
    ascending = losses.sort(1).values  # (R, N)
    top = ascending[:, -1:].to(wide)  # NaN if one is
    exact = torch.float64 if wide == torch.float64 else torch.int64  # integers, in either
    count = size - (losses < 0).sum(1, keepdim=True, dtype=exact)
    whole, fraction = pixel_numbers(m, share, count, wide)
    pixels = whole + fraction if isinstance(whole, Tensor) else fraction
    broken = ~(top < torch.inf)
    uniform = torch.full_like(broken, True) if is_uniform(p) else pixels >= count
    # With more room than there are pixels, all positive losses are saturated. Twice as much, because of rounding.
    fraction = fraction.masked_fill(uniform, 2.0 * size)
    unit = top.clamp(min=smallest(losses.dtype))
    saturated = saturated_losses(ascending, whole, fraction, conjugate_exponent(p), unit)
    facts = (count.to(wide), pixels, top, uniform, broken)
    return Searched(Saturated(*(field.squeeze(1) for field in saturated)), *(fact.squeeze(1) for fact in facts))


def saturated_losses(
    ascending: Tensor, whole: Tensor | int, fraction: Tensor, q: float, unit: Tensor
) -> Saturated[Tensor]:
    """Find the saturated losses of sorted pools (R, N); all results, and m = whole + fraction, have shape (R, 1).

    ``unit`` is the largest loss, or a positive number if that is 0. With fewer than m positive losses all of them are
    saturated, and u is 0.
    """
    size, wide = ascending.shape[1], fraction.dtype
    ascending = ascending.clamp(min=0.0)  # void pixels fill no room
    rank = torch.arange(1 - size, 1, device=ascending.device)
    room = (rank + whole if isinstance(whole, Tensor) else rank) + fraction  # m minus the number of larger losses
    first = (room <= 0).sum(1, keepdim=True).clamp_(max=size - 1)
    uncut = relative_powers(ascending, ascending.gather(1, first), q, wide)
    powers = uncut.clamp(max=2.0**LARGEST_LOG)
    # u is the largest loss with η ≤ 0: up to it, losses fill the room that the larger ones leave. If one does, all
    # smaller ones do, or equal ones in their place. Losses that fill it exactly must not fail by a rounding error.
    # The room at A may be lost in the sum of cut powers, so the other side is not cut.
    below = torch.addcmul(running_sums(powers), room, uncut, value=32 * torch.finfo(wide).eps - 1.0) >= 0
    filled = below.sum(1, keepdim=True)
    last = (filled - 1).clamp_(min=0)
    # A running sum would round more often than this one.
    total = (powers * below).sum(1, keepdim=True) / powers.gather(1, last)
    above = (ascending / unit).masked_fill_(below, 0.0)
    largest = ascending.gather(1, last).to(wide).masked_fill_(filled <= 0, 0.0)
    return Saturated(room.gather(1, last), above.sum(1, keepdim=True), largest, total)
