"""Which losses of a pool are trimmed: those above the (k+1)-th largest, k = ⌊share·n⌋.

The comparison is strict, so that equal losses stay together, and a NaN is never trimmed: it shows in the result.
See docs/derivation.md, "Trimming".
"""

from __future__ import annotations

import torch
from torch import Tensor

from losspool.solver import host
from losspool.solver.counting import Exchange
from losspool.solver.threads import spread

_SMALL_POOL = 256  # sorted all at once, because a selection per pool would cost more calls
_DIGIT = 16  # bits that a pass over a shared pool decides: each process sends half a megabyte


def trimmed(losses: Tensor, share: float, exchange: Exchange | None = None) -> Tensor:
    """Return where ``losses`` (R, N), which are negative for void pixels, are trimmed.

    With ``exchange``, pools span several processes, and each process holds part of their pixels.
    """
    if exchange is not None:
        return losses > _shared_threshold(losses, share, exchange)
    size = losses.shape[1]
    if size == 0:
        return losses > 0
    count = size - (losses < 0).sum(1, keepdim=True)
    position = size - 1 - _number(count, share)  # of the threshold, in ascending order
    if size <= _SMALL_POOL or not host.host_may_look(losses):
        return losses > losses.sort(1).values.gather(1, position)
    jobs = list(zip(losses, position.squeeze(1).tolist(), strict=True))
    thresholds = spread(lambda: lambda job: job[0].kthvalue(job[1] + 1).values, jobs, losses.numel())
    return losses > torch.stack(thresholds).unsqueeze(1)


def _number(count: Tensor, share: float) -> Tensor:
    """Return k = ⌊share·n⌋. Integers take the place of float64 where there is none."""
    share *= 1.0 + 2.0**-50  # 0.29 is a little less than 29 %, and 29 of 100 must be 29
    return (count.double() * share).long() if host.has_float64(count) else (count * round(share * 2.0**32)) >> 32


def _shared_threshold(losses: Tensor, share: float, exchange: Exchange) -> Tensor:
    """Find the (k+1)-th largest loss of each pool digit by digit: non-negative floats order like their bits."""
    integers, digits = (torch.int64, 4) if losses.dtype == torch.float64 else (torch.int32, 2)
    bins = 1 << _DIGIT
    keys = losses.contiguous().view(integers).long().clamp_(min=0)
    prefix = keys.new_zeros(len(keys), 1)
    larger: Tensor | None = None  # how many of the losses with this prefix are above the threshold
    for shift in range((digits - 1) * _DIGIT, -1, -_DIGIT):
        counted = (keys >> shift >> _DIGIT == prefix) & ~(losses < 0)
        slots = torch.where(counted, keys >> shift & (bins - 1), bins)
        counts = keys.new_zeros(len(keys), bins + 1).scatter_add_(1, slots, torch.ones_like(slots))
        counts = exchange(counts, losses.new_empty(len(keys), 0, dtype=torch.float64))[0][:, :bins]
        upwards = counts.flip(1).cumsum(1).flip(1)  # of each digit and the larger ones
        larger = _number(upwards[:, :1], share) if larger is None else larger
        digit = ((upwards > larger).sum(1, keepdim=True) - 1).clamp_(min=0)
        larger = larger - (upwards - counts).gather(1, digit)
        prefix = prefix << _DIGIT | digit
    return prefix.to(integers).view(losses.dtype)
