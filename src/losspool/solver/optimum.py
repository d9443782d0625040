"""The optimal pixel weights of loss max-pooling.

Symbols follow the paper (Rota Bulò et al., CVPR 2017): ``p`` and ``m`` define the set W of
Eq. (5), ``q = p / (p - 1)``, ``tau`` bounds a weight, and ``alpha`` is the largest root of η,
Eq. (9). A loss above ``alpha`` is *saturated*: its weight is ``tau``.

All functions take ``losses`` of shape ``(R, N)``: R independent pools of N pixels.
**Void pixels carry a negative loss**, so one tensor holds both the losses and the mask.

``docs/derivation.md`` derives each formula. Three searches find the saturated losses of a pool:
``newton.py`` on CPUs, ``sorting.py`` on CPUs where there are many small pools, and ``counting.py``
everywhere else and for pools that span several processes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import counting, host, newton, sorting
from losspool.solver.counting import Gather
from losspool.solver.newton import column_blocks, take_survey
from losspool.solver.powers import (
    INFINITE_Q,
    Saturated,
    conjugate_exponent,
    is_uniform,
    lowest_exponent,
    weight_exponent,
)

# Sorting takes the fewest operations, and Newton's search the least time per loss: few losses are sorted. So are
# many small pools, because Newton's search also takes microseconds per pool and round; large ones are grouped.
_FEW_LOSSES = 1 << 14
_MANY_POOLS, _SMALL_POOL = 64, 8192
# More pools than this are counted in groups.
_MOST_COUNTED = 512


class Solution(NamedTuple):
    """The optimum of each pool; every field is float64 of shape ``(R,)`` unless noted."""

    value: Tensor  # L_W, Eq. (10)
    alpha: Tensor
    tau: Tensor
    valid: Tensor  # n, the number of valid pixels
    reference: Tensor  # the largest unsaturated loss; weights are computed relative to it
    log_scale: Tensor  # log(w / tau) of a pixel whose loss is `reference`
    uniform: Tensor  # bool: every valid pixel gets 1/n (p = ∞ or m = n)
    broken: Tensor  # bool: a valid loss is not finite


def solve(losses: Tensor, *, p: float, m: float, share: bool, gather: Gather | None = None) -> Solution:
    """Solve every pool. ``m`` is a fraction of the pool's valid pixels if ``share``, else a number of pixels.

    With ``gather``, pools span several processes, and each process holds part of their pixels.
    """
    if losses.shape[1] == 0:
        losses = losses.new_full((losses.shape[0], 1), -1.0)  # a void pixel makes no difference
    rows, size = losses.shape
    counted = gather is not None or not host.host_may_look(losses)
    most = _MOST_COUNTED if counted else _MANY_POOLS
    if rows > most and (counted or size > _SMALL_POOL):
        groups = [solve(group, p=p, m=m, share=share, gather=gather) for group in losses.split(most)]
        return Solution(*(torch.cat(fields) for fields in zip(*groups, strict=True)))
    if counted:
        return _finish(*counting.search(losses, p=p, m=m, share=share, gather=gather), p)
    q = conjugate_exponent(p)
    surveys = take_survey(losses)
    pixels = [min(max(m * pool.valid if share else m, 1.0), pool.valid) for pool in surveys]
    broken = [not math.isfinite(pool.top) for pool in surveys]
    uniform = [is_uniform(p) or each >= pool.valid for pool, each in zip(surveys, pixels, strict=True)]
    # With fewer than m positive losses, η has no positive root.
    solvable = [
        not is_broken and not is_flat and pool.positives >= each
        for is_broken, is_flat, pool, each in zip(broken, uniform, surveys, pixels, strict=True)
    ]
    if (rows > _MANY_POOLS or rows * size <= _FEW_LOSSES) and (q <= sorting.LARGEST_Q or q == INFINITE_Q):
        saturated = sorting.search(losses, pixels, solvable, q)
    else:
        saturated = newton.search(losses, surveys, pixels, solvable, q)
    facts = torch.tensor(
        [[pool.valid for pool in surveys], pixels, [pool.top for pool in surveys]], dtype=torch.float64
    )
    count, pixel_counts, top = facts.unbind()
    flags = torch.tensor([uniform, broken], dtype=torch.bool)
    return _finish(saturated, count, pixel_counts, top, flags[0], flags[1], p)


def _finish(
    saturated: Saturated, count: Tensor, pixels: Tensor, top: Tensor, uniform: Tensor, broken: Tensor, p: float
) -> Solution:
    """Return the optimum that the saturated losses determine."""
    # log(α/u) = log(total/room)/q, so log(w/τ) at u is (q-1)·log(u/α) = -log(total/room)/p.
    unsaturated = saturated.largest > 0
    log_ratio = torch.where(unsaturated, (saturated.total / saturated.room).log(), 0.0)
    tau = torch.where(count > 0, (count / pixels).pow(1.0 / p) / count, 0.0)  # τ = n^(-1/q)·m^(-1/p)
    unit = torch.where(top > 0, top, 1.0)
    alpha = saturated.largest * (log_ratio * (1.0 - 1.0 / p)).exp()
    # The unsaturated losses contribute τ·room·α. Of two equal forms, take the one with the smaller exponent.
    rest = saturated.room * (log_ratio * (1.0 - 1.0 / p)).exp() if p < 2 else saturated.total * (log_ratio / -p).exp()
    value = tau * (saturated.sum + rest * (saturated.largest / unit)) * unit
    return Solution(
        value=torch.where(broken, top, value),
        alpha=torch.where(broken, torch.nan, alpha),
        tau=tau,
        valid=count,
        reference=saturated.largest,
        log_scale=log_ratio * (-1.0 / p),
        uniform=uniform,
        broken=broken,
    )


def weights(losses: Tensor, solution: Solution, p: float) -> Tensor:
    """Return w* = τ·min(1, (ℓ/α)^(q-1)) in the shape and dtype of ``losses``; 0 for void pixels."""
    dtype = losses.dtype
    exponent = weight_exponent(p)
    unsaturated = solution.reference > 0
    reference = torch.where(unsaturated, solution.reference, 1.0)
    # ℓ/u is precise but may underflow. For q near 1 the weight of an underflowing ratio is still of the
    # order of τ, so do not divide there: for these q the rounding of log ℓ is harmless.
    divisor = reference.to(dtype).to(reference.dtype) if exponent > 1 / 3 else torch.ones_like(reference)
    shift = solution.log_scale + exponent * (divisor.log() - reference.log())
    # If no positive loss is unsaturated, every positive loss gets τ: any large shift works.
    shift = torch.where(unsaturated, shift, math.inf)
    # Zero losses and underflowing weights get an exact zero; computing their logarithms would be slow.
    info = torch.finfo(dtype)
    floor = divisor * ((lowest_exponent(dtype) - shift) / exponent).exp()
    floor = floor.clamp(min=info.smallest_normal * info.eps)
    floor, shift, divisor, tau = torch.stack([floor, shift, divisor, solution.tau]).to(dtype).unsqueeze(2)

    result = torch.empty_like(losses)
    blocks = column_blocks(losses)
    scratch = torch.empty_like(blocks[0])
    for block, factor in zip(blocks, column_blocks(result), strict=True):
        # log and exp give equal results for equal losses at any position; torch's pow and exp2 do not.
        torch.clamp(block, min=floor, out=factor).div_(divisor).log_()
        torch.add(shift, factor, alpha=exponent, out=factor).clamp_(max=0.0).exp_().mul_(tau)
        factor.mul_(torch.ge(block, floor, out=scratch[:, : block.shape[1]]))

    special = solution.uniform | solution.broken
    if not host.host_may_look(losses) or bool(special.any()):
        everywhere = torch.where(solution.broken, torch.nan, solution.tau).to(dtype).unsqueeze(1)
        result = torch.where(special.unsqueeze(1), torch.where(losses < 0, 0.0, everywhere), result)
    return result
