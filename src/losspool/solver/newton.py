"""Search for the saturated losses {ℓ > θ} of each pool by Newton's method: the search on CPUs.

With powers relative to a reference u, ``total = Σ_{ℓ ≤ θ} (ℓ/u)^q`` and ``room = m - #{ℓ > θ}``, one step
on η is ``log α = log u + log(total/room)/q``. Tensors hold the losses. Everything else is a Python float per
pool, because a tensor operation on a handful of numbers costs as much as one on thousands.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor

from losspool.solver import bracketed
from losspool.solver.powers import WEAK, Saturated, lowest_exponent
from losspool.solver.survey import Survey, column, column_blocks, sum_above

# The search in a small pool starts near its mean loss, which is as good a start for the losses of a network.
_SMALL_POOL, _TIMES_THE_MEAN = 1 << 14, 1.5
# In other pools it starts from the solution of a sample: a 64th of each pool, within these limits.
_SMALLEST_SAMPLE, _LARGEST_SAMPLE = 64, 1024
# Newton's method converges within this many rounds, or is given up. Near p = 1 it would crawl.
_ROUNDS, _LARGEST_Q = 12, 1e4
# How far above the start powers are computed: up to a power of e^16.
_REACH = 16.0
# A start that leaves no room is a little too low.
_WITHOUT_ROOM = 1.3


def search(losses: Tensor, surveys: list[Survey], pixels: list[float], q: float) -> list[Saturated[float]]:
    """Find the saturated losses of each pool, which must have at least m positive ones. ``pixels`` is m.

    Newton's method converges in a few rounds from a good start. Where it does not, near p = 1 and on
    extreme losses, the bracketed search takes over.
    """
    if losses.shape[1] <= _SMALL_POOL:
        found = _newton(losses, surveys, pixels, _mean_starts(losses, surveys), q)
        if found is not None:
            return found
    starts = _sampled_starts(losses, surveys, pixels, q)
    return _newton(losses, surveys, pixels, starts, q) or bracketed.search(losses, surveys, pixels, starts, q)


def _newton(
    losses: Tensor, surveys: list[Survey], pixels: list[float], starts: list[float], q: float
) -> list[Saturated[float]] | None:
    """Iterate in all pools at once. Return None unless all of them converge within a few rounds.

    The sets {ℓ > θ} are nested. If equally many losses lie above two successive thresholds, they are
    the same losses, and the next step would lead to the same threshold again: it is the solution.
    """
    if q > _LARGEST_Q:
        return None
    reach, floor = math.exp(_REACH / q), math.exp(lowest_exponent(losses.dtype) / q)
    tops = [survey.top for survey in surveys]
    reference = column([min(top, start * reach) for top, start in zip(tops, starts, strict=True)], losses.dtype)
    blocks = column_blocks(losses)
    # Losses beyond the reference get the wrong power. They only count if θ ends up beyond it, too.
    powers = [(block / reference).clamp_(floor, 1.0).log_().mul_(q).exp_() for block in blocks]
    scratch = blocks[0].new_empty(2, *blocks[0].shape)
    pairs = [(pair, pair[0], pair[1]) for pair in (scratch[:, :, : block.shape[1]] for block in blocks)]
    units = reference.squeeze(1).tolist()
    thetas, before = starts, None
    for _ in range(_ROUNDS):
        threshold = _rounded_down(thetas, losses.dtype)
        counts, totals = _count_and_sum(blocks, powers, threshold, pairs)
        rooms = [m - count for m, count in zip(pixels, counts, strict=True)]
        facts = zip(rooms, totals, units, thetas, strict=True)
        thetas = [
            unit * (total / room) ** (1.0 / q) if room > 0 else theta * _WITHOUT_ROOM
            for room, total, unit, theta in facts
        ]
        if counts == before and min(rooms) > 0:
            break
        before = counts
    else:
        return None
    # If u is the largest loss, no loss lies beyond the reference, and α may: then none is saturated.
    beyond = any(theta > unit and unit < top for theta, unit, top in zip(thetas, units, tops, strict=True))
    if beyond or min(totals) < WEAK:
        return None
    sums = sum_above(losses, threshold, tops)
    return [Saturated(*row) for row in zip(rooms, sums, units, totals, strict=True)]


def _rounded_down(thetas: list[float], dtype: torch.dtype) -> Tensor:
    """Return θ as (R, 1), among denormals not rounded up: losses that lie between the two would be lost.

    Elsewhere such losses differ from θ by less than they are exact. Denormals differ by up to their own size.
    """
    found = column(thetas, dtype)
    if min(thetas) >= torch.finfo(dtype).smallest_normal:
        return found
    above = found.double() > column(thetas, torch.float64)
    return torch.where(above, torch.nextafter(found, torch.zeros_like(found)), found)


def _count_and_sum(
    blocks: list[Tensor], powers: list[Tensor], threshold: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]
) -> tuple[list[float], list[float]]:
    """Return #{ℓ > θ} of each pool, and the sum of the other losses' powers.

    ``pairs`` is memory of twice the shape of each block, and the two halves of it.
    """
    parts = []
    for block, raised, (pair, above, rest) in zip(blocks, powers, pairs, strict=True):
        torch.gt(block, threshold, out=above)  # as floats: several times faster than a boolean mask
        torch.addcmul(raised, raised, above, value=-1.0, out=rest)
        parts.append(pair.sum(2).tolist())
    counts, totals = parts[0]
    for more_counts, more_totals in parts[1:]:
        counts, totals = list(map(operator.add, counts, more_counts)), list(map(operator.add, totals, more_totals))
    return counts, totals


def _mean_starts(losses: Tensor, surveys: list[Survey]) -> list[float]:
    """Return a multiple of the mean loss of each pool, or its largest loss if that is smaller."""
    sums = losses.clamp(min=0.0).sum(1).tolist()
    return [min(_TIMES_THE_MEAN * total / each.valid, each.top) for total, each in zip(sums, surveys, strict=True)]


def _sampled_starts(losses: Tensor, surveys: list[Survey], pixels: list[float], q: float) -> list[float]:
    """Return the largest loss with η ≤ 0 in a sample of each pool, or the largest of all if the pools are small."""
    size = losses.shape[1]
    if size < 2 * _SMALLEST_SAMPLE:
        return [survey.top for survey in surveys]
    sample = losses[:, :: _coprime_stride(size, min(max(size // 64, _SMALLEST_SAMPLE), _LARGEST_SAMPLE))]
    ascending, taken = sample.sort(1).values, sample.shape[1]
    logs = ascending.double().clamp_(min=torch.finfo(losses.dtype).tiny).log_().mul_(q)
    total = logs.logcumsumexp(1).sub_(logs).exp_()  # Σ (ℓ/u)^q over the losses up to each loss u
    scaled = logs.new_tensor(pixels).mul_(taken / size).unsqueeze(1)
    room = (
        torch.arange(1.0 - taken, 1.0, dtype=torch.float64, device=logs.device) + scaled
    )  # m minus the number of larger losses
    last = (total >= room).sum(1, keepdim=True).sub_(1).clamp_(min=0)
    return [
        max(start, 0.0) or survey.top
        for start, survey in zip(ascending.gather(1, last)[:, 0].tolist(), surveys, strict=True)
    ]


def _coprime_stride(size: int, most: int) -> int:
    """Return the smallest stride that takes at most ``most`` samples and is coprime to ``size``.

    A stride that divides the image width would only sample a few of its columns.
    """
    stride = -(-size // most)
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride
