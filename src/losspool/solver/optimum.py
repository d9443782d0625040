"""The optimal pixel weights of loss max-pooling, computed without sorting the pixels.

Symbols follow the paper (Rota Bulò et al., CVPR 2017): ``p`` and ``m`` define the set W of
Eq. (5), ``q = p / (p - 1)``, ``tau`` bounds a weight, and ``alpha`` is the largest root of η,
Eq. (9). A loss above ``alpha`` is *saturated*: its weight is ``tau``.

All functions take ``losses`` of shape ``(R, N)``: R independent pools of N pixels.
**Void pixels carry a negative loss**, so one tensor holds both the losses and the mask.

``docs/derivation.md`` derives each formula. ``tally.py`` reads the losses, ``search.py`` finds the root.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import host, search
from losspool.solver.tally import INFINITE_Q, Gather, Tally, block_sum, column_blocks, lowest_exponent


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
    count, positives, top = _survey(losses, gather)
    pixels = (m * count if share else torch.full_like(count, m)).clamp(min=1.0).minimum(count)
    broken = ~torch.isfinite(top)
    uniform = torch.full_like(broken, True) if is_uniform(p) else pixels >= count
    # With fewer than m positive losses, η has no positive root. Then α* = 0, the search's default result.
    solvable = ~(broken | uniform) & (positives >= pixels)
    q = conjugate_exponent(p)
    theta, tally = _saturated_set(losses, top, positives, pixels, solvable, q, gather)

    # log(α/u) = log(total/room)/q, so log(w/τ) at u is (q-1)·log(u/α) = -log(total/room)/p.
    unsaturated = tally.largest > 0
    room = pixels - tally.above
    log_ratio = torch.where(unsaturated, (tally.total / room).log(), 0.0)
    alpha = torch.where(unsaturated, tally.largest * (log_ratio / q).exp(), 0.0)
    tau = _bound(count, pixels, p)
    value = tau * (_sum_above(losses, theta, gather) + room * alpha)
    return Solution(
        value=torch.where(broken, top, value),
        alpha=torch.where(broken, torch.nan, alpha),
        tau=tau,
        valid=count,
        reference=torch.where(unsaturated, tally.largest, 0.0),
        log_scale=-log_ratio / p,
        uniform=uniform,
        broken=broken,
    )


def weights(losses: Tensor, solution: Solution, p: float) -> Tensor:
    """Return w* = τ·min(1, (ℓ/α)^(q-1)) in the shape and dtype of ``losses``; 0 for void pixels."""
    dtype = losses.dtype
    exponent = min(1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q  # q - 1, without cancellation
    unsaturated = solution.reference > 0
    # ℓ/u is precise but may underflow. For q near 1 the weight of an underflowing ratio is still of the
    # order of τ, so do not divide there: for these q the rounding of log ℓ is harmless.
    divide = exponent > 1 / 3
    divisor = torch.where(unsaturated & divide, solution.reference, 1.0)
    shift = solution.log_scale - (0.0 if divide else exponent * solution.reference.log())
    # If no positive loss is unsaturated, every positive loss gets τ: any large shift works.
    shift = torch.where(unsaturated, shift, math.inf)
    # Zero losses and underflowing weights get an exact zero; computing their logarithms would be slow.
    info = torch.finfo(dtype)
    floor = divisor * ((lowest_exponent(dtype) - shift) / exponent).exp()
    floor, shift, divisor, tau = (
        value.to(dtype).unsqueeze(1)
        for value in (floor.clamp(min=info.smallest_normal * info.eps), shift, divisor, solution.tau)
    )

    result = torch.empty_like(losses)
    scratch = torch.empty_like(losses[:, column_blocks(losses)[0]])
    for columns in column_blocks(losses):
        block, factor = losses[:, columns], result[:, columns]
        # log and exp give equal results for equal losses at any position; torch's pow and exp2 do not.
        torch.clamp(block, min=floor, out=factor).div_(divisor).log_()
        torch.add(shift, factor, alpha=exponent, out=factor).clamp_(max=0.0).exp_().mul_(tau)
        factor.mul_(torch.ge(block, floor, out=scratch[:, : block.shape[1]]))

    special = solution.uniform | solution.broken
    if not host.host_may_look(losses) or bool(special.any()):
        everywhere = torch.where(solution.broken, torch.nan, solution.tau).to(dtype).unsqueeze(1)
        result = torch.where(special.unsqueeze(1), torch.where(losses < 0, 0.0, everywhere), result)
    return result


def conjugate_exponent(p: float) -> float:
    """Return q = p / (p - 1), or ``INFINITE_Q`` for p = 1."""
    return min(1.0 + 1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q


def is_uniform(p: float) -> bool:
    """Return whether p is ∞, or so large that q rounds to one."""
    return conjugate_exponent(p) == 1.0


def _survey(losses: Tensor, gather: Gather | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of valid pixels, the number of positive losses and the largest loss of each pool."""
    void = losses.new_zeros(losses.shape[0], dtype=torch.float64)
    positives = torch.zeros_like(void)
    top = torch.zeros_like(void)
    scratch = torch.empty_like(losses[:, column_blocks(losses)[0]])
    for columns in column_blocks(losses):
        block = losses[:, columns]
        flags = scratch[:, : block.shape[1]]
        void = void + block_sum(torch.lt(block, 0.0, out=flags))
        positives = positives + block_sum(torch.gt(block, 0.0, out=flags))
        if block.shape[1]:
            top = torch.maximum(top, block.amax(1).double())  # propagates NaN
    survey = torch.stack([losses.shape[1] - void, positives, top])
    if gather is None:
        return survey[0], survey[1], survey[2]
    ranks = gather(survey)
    return ranks[:, 0].sum(0), ranks[:, 1].sum(0), ranks[:, 2].amax(0)


def _saturated_set(
    losses: Tensor, top: Tensor, positives: Tensor, pixels: Tensor, solvable: Tensor, q: float, gather: Gather | None
) -> tuple[Tensor, Tally]:
    if not host.host_may_look(losses):
        return search.bisect(losses, top, pixels, solvable, q, gather)
    start = search.sampled_start(losses, pixels, q) if gather is None else None
    return search.newton(losses, top, positives, pixels, solvable, q, start=start, gather=gather)


def _bound(count: Tensor, pixels: Tensor, p: float) -> Tensor:
    """Return τ = n^(-1/q)·m^(-1/p), or 0 for a pool without valid pixels."""
    inverse_p = 1.0 / p
    return torch.where(count > 0, count.pow(inverse_p - 1.0) * pixels.pow(-inverse_p), 0.0)


def _sum_above(losses: Tensor, theta: Tensor, gather: Gather | None) -> Tensor:
    """Return Σ_{ℓ > θ} ℓ for each pool."""
    threshold = theta.to(losses.dtype).unsqueeze(1)
    total = torch.zeros_like(theta)
    scratch = torch.empty_like(losses[:, column_blocks(losses)[0]])
    for columns in column_blocks(losses):
        block = losses[:, columns]
        above = torch.gt(block, threshold, out=scratch[:, : block.shape[1]])
        total = total + above.mul_(block).sum(1, dtype=torch.float64)  # float32 could overflow
    return total if gather is None else gather(total).sum(0)
