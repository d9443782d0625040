"""The optimal pixel weights of loss max-pooling.

Symbols follow the paper (Rota Bulò et al., CVPR 2017): ``p`` and ``m`` define the set W of
Eq. (5), ``q = p / (p - 1)``, ``tau`` bounds a weight, and ``alpha`` is the largest root of η,
Eq. (9). A loss above ``alpha`` is *saturated*: its weight is ``tau``.

All functions take ``losses`` of shape ``(R, N)``: R independent pools of N pixels.
**Void pixels carry a negative loss**, so one tensor holds both the losses and the mask.

``docs/derivation.md`` derives each formula. Several searches find the saturated losses of a pool:
``newton.py`` on CPUs, with ``bracketed.py`` where it does not converge; ``sorting.py`` for small pools and
on other devices; ``counting.py`` for pools that span several processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import counting, host, newton, sorting
from losspool.solver.counting import Exchange
from losspool.solver.powers import (
    INFINITE_Q,
    Number,
    Saturated,
    Searched,
    conjugate_exponent,
    is_uniform,
    lowest_exponent,
    smallest,
    weight_exponent,
)
from losspool.solver.survey import Survey, column, column_blocks, sum_above, take_survey
from losspool.solver.threads import spread

# Sorting takes the fewest operations, and Newton's search the least time per loss: smaller pools than this are sorted.
_SMALL_POOL = 256
# On CPUs, pools are solved in groups of about this many losses, and in larger groups by counting.
_GROUP, _MOST_COUNTED = 1 << 17, 512


class Solution(NamedTuple):
    """The optimum of each pool; every field is float64 of shape ``(R,)`` unless noted.

    A loss of at least ``least`` gets the weight scale·exp(min(0, (q - 1)·log(max(ℓ, floor)/divisor) + shift)),
    a smaller one the weight 0.
    """

    value: Tensor  # L_W, Eq. (10)
    alpha: Tensor
    tau: Tensor
    valid: Tensor  # n, the number of valid pixels
    divisor: Tensor
    shift: Tensor
    floor: Tensor
    least: Tensor
    scale: Tensor  # τ; NaN if a valid loss is not finite


def solve(losses: Tensor, *, p: float, m: float, share: bool, exchange: Exchange | None = None) -> Solution:
    """Solve every pool. ``m`` is a fraction of the pool's valid pixels if ``share``, else a number of pixels.

    With ``exchange``, pools span several processes, and each process holds part of their pixels.
    """
    if losses.shape[1] == 0:
        losses = losses.new_full((losses.shape[0], 1), -1.0)  # a void pixel makes no difference
    if exchange is None and host.host_may_look(losses):
        step = max(_GROUP // losses.shape[1], 1)
        parts = [losses] if len(losses) <= step else losses.split(step)
        groups = spread(lambda: partial(_solve_on_cpu, p=p, m=m, share=share), parts, losses.numel())
    elif exchange is None:
        groups = [_finish(sorting.search(losses, p=p, m=m, share=share), p, losses.dtype)]
    else:
        groups = [
            _finish(counting.search(group, p=p, m=m, share=share, exchange=exchange), p, losses.dtype)
            for group in losses.split(_MOST_COUNTED)
        ]
    return groups[0] if len(groups) == 1 else Solution(*(torch.cat(fields) for fields in zip(*groups, strict=True)))


def _solve_on_cpu(losses: Tensor, p: float, m: float, share: bool) -> Solution:
    surveys = take_survey(losses)
    pixels = [min(max(m * pool.valid if share else m, 1.0), pool.valid) for pool in surveys]
    uniform = [is_uniform(p) or each >= pool.valid for pool, each in zip(surveys, pixels, strict=True)]
    broken = [not math.isfinite(pool.top) for pool in surveys]
    # With fewer than m positive losses, η has no positive root.
    solvable = [
        row for row, pool in enumerate(surveys) if not (broken[row] or uniform[row]) and pool.positives >= pixels[row]
    ]
    rows: list[tuple[float, ...]] = [()] * len(surveys)
    if solvable:
        chosen = losses if len(solvable) == len(surveys) else losses[solvable]
        found = _search(
            chosen, [surveys[row] for row in solvable], [pixels[row] for row in solvable], conjugate_exponent(p)
        )
        for row, saturated in zip(solvable, found, strict=True):
            pool = surveys[row]
            tau = _tau(pool.valid, pixels[row], p)
            rows[row] = _optimum(saturated, pool.valid, pool.top, tau, p, losses.dtype, math.log)
    if len(solvable) < len(surveys):
        sums = sum_above(losses, torch.zeros_like(losses[:, :1]), [pool.top or 1.0 for pool in surveys])
        for row in set(range(len(surveys))) - set(solvable):
            pool = surveys[row]
            tau = _tau(pool.valid, pixels[row], p) if pool.valid else 0.0
            value, alpha = (pool.top, math.nan) if broken[row] else (tau * sums[row] * (pool.top or 1.0), 0.0)
            tiny = smallest(losses.dtype)
            least, scale = 0.0 if uniform[row] or broken[row] else tiny, math.nan if broken[row] else tau
            rows[row] = (value, alpha, tau, pool.valid, 1.0, math.inf, tiny, least, scale)
    return Solution(*losses.new_tensor(rows, dtype=torch.float64).view(-1, len(Solution.__annotations__)).T)


def _search(losses: Tensor, surveys: list[Survey], pixels: list[float], q: float) -> list[Saturated[float]]:
    """Find the saturated losses of each pool, which must have at least m positive ones. ``pixels`` is m."""
    if losses.shape[1] <= _SMALL_POOL and (q <= sorting.LARGEST_Q or q == INFINITE_Q):
        m, top = (column(each, torch.float64) for each in (pixels, [survey.top for survey in surveys]))
        found = sorting.saturated_losses(losses.sort(1).values, 0, m, q, top)
        return [Saturated(*row) for row in torch.cat(found, 1).tolist()]
    return newton.search(losses, surveys, pixels, q)


def _finish(searched: Searched, p: float, dtype: torch.dtype) -> Solution:
    """Return the optimum of each pool, in a fixed number of tensor operations."""
    (room, above, largest, total), count, pixels, top, uniform, broken = searched
    unsolvable = largest <= 0  # uniform pools among them
    tau = _tau(count, pixels, p).masked_fill_(count <= 0, 0.0)
    saturated = Saturated(room.masked_fill(unsolvable, 1.0), above, largest, total.masked_fill(unsolvable, 1.0))
    tiny = smallest(dtype)
    unit = top.clamp(min=tiny)
    value, alpha, *_, divisor, shift, floor, _, _ = _optimum(saturated, count, unit, tau, p, dtype, torch.log)
    floor = floor.masked_fill_(unsolvable, tiny)
    return Solution(
        value=torch.where(broken, top, value),
        alpha=alpha.masked_fill(broken, math.nan),
        tau=tau,
        valid=count,
        divisor=divisor,  # where it is 0, the shift decides
        shift=shift.masked_fill(unsolvable, math.inf),
        floor=floor,
        least=floor.masked_fill(uniform | broken, 0.0),
        scale=tau.masked_fill(broken, math.nan),
    )


def _tau(count: Number, pixels: Number, p: float) -> Number:
    """Return τ = n^(-1/q)·m^(-1/p)."""
    return (count / pixels) ** (1.0 / p) / count


def _optimum(
    saturated: Saturated[Number],
    count: Number,
    top: Number,
    tau: Number,
    p: float,
    dtype: torch.dtype,
    log: Callable[[Number], Number],
) -> tuple[Number, ...]:
    """Return the fields of :class:`Solution` of pools that have an α.

    Numbers are Python floats on the CPU, where a tensor operation on a few numbers takes as long as on thousands.
    """
    room, sum_, largest, total = saturated
    # log(α/u) = log(total/room)/q, so log(w/τ) at u is (q-1)·log(u/α) = -log(total/room)/p.
    ratio = total / room
    growth = ratio ** (1.0 - 1.0 / p)
    # The unsaturated losses contribute τ·room·α. Of two equal forms, take the one with the smaller exponent.
    rest = room * growth if p < 2 else total * ratio ** (-1.0 / p)
    value = tau * (sum_ + rest * (largest / top)) * top
    exponent = weight_exponent(p)
    # ℓ/u is precise but may underflow. For q near 1 the weight of an underflowing ratio is still of the
    # order of τ, so do not divide there: for these q the rounding of log ℓ is harmless.
    shift, divisor = log(ratio) / -p, largest
    if exponent <= 1 / 3:
        shift, divisor = shift - exponent * log(largest), largest**0
    # Underflowing weights become an exact zero; computing their logarithms would be slow.
    negligible = math.exp(lowest_exponent(dtype) / exponent) if exponent > 0 else 0.0
    floor = largest * (growth * negligible)  # α itself may be too large for a float32
    return value, largest * growth, tau, count, divisor, shift, floor, floor, tau


def weights(losses: Tensor, solution: Solution, p: float) -> Tensor:
    """Return w* = τ·min(1, (ℓ/α)^(q-1)) in the shape and dtype of ``losses``; 0 for void pixels."""
    exponent = weight_exponent(p)
    fields = torch.stack(solution[4:]).to(losses.dtype)
    divisor, shift, floor, least, scale = fields.unsqueeze(2)  # (R, 1) each
    result = torch.empty_like(losses)
    look = host.host_may_look(losses)
    finite = look and math.isfinite(float(scale.sum()))

    def weigh(part: tuple[Tensor, Tensor]) -> None:
        block, factor = part
        # log and exp give equal results for equal losses at any position; torch's pow and exp2 do not.
        torch.clamp(block, min=floor, out=factor).div_(divisor).log_()
        torch.add(shift, factor, alpha=exponent, out=factor).clamp_(max=0.0).exp_().mul_(scale)
        if finite:  # quicker on CPUs
            factor.mul_(torch.ge(block, least, out=torch.empty_like(block)))
        else:
            factor.masked_fill_(block < least, 0.0)

    parts = zip(column_blocks(losses), column_blocks(result), strict=True) if look else [(losses, result)]
    spread(lambda: weigh, list(parts), losses.numel() if look else 0)
    return result
