"""Tally the losses at a threshold θ: one pass over the data per round of the search.

A tally holds the number of losses above θ, the largest of the others (u), and Σ_{ℓ ≤ θ} (ℓ/u)^q.
The sum is the log-sum-exp of q·log ℓ relative to its largest term; see docs/derivation.md,
"What the log form buys".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import host

# Losses per block. The temporaries of one block fit in a shared cache; smaller blocks cost more calls.
_BLOCK = 1 << 20

# Stands for q = ∞, at p = 1. Every power of a ratio below one underflows to zero and 1^q is one, which is
# the limit p → 1. Unlike ∞, it gives zero when multiplied by zero.
INFINITE_Q = 1e30

Gather = Callable[[Tensor], Tensor]
"""Maps a tensor of shape S to the stack ``(ranks, *S)`` of all ranks' tensors."""


class Tally(NamedTuple):
    """Statistics of each pool at a threshold θ; all fields are float64 of shape ``(R,)``."""

    above: Tensor  # #{ℓ > θ}
    largest: Tensor  # u, the largest loss ≤ θ; not positive if there is none
    total: Tensor  # Σ_{ℓ ≤ θ} (ℓ/u)^q


def take_tally(losses: Tensor, theta: Tensor, q: float, gather: Gather | None) -> Tally:
    """Compute one tally from scratch, without reading any value on the host."""
    blocks = [_block_tally(losses[:, columns], theta, q) for columns in column_blocks(losses)]
    if len(blocks) == 1 and gather is None:
        return blocks[0]
    parts = torch.stack([torch.stack(block) for block in blocks])
    if gather is not None:
        parts = gather(_merge(parts, q))
    return Tally(*_merge(parts, q).unbind())


class TallyKeeper:
    """Tally the same losses at many thresholds, and recompute powers only when necessary.

    Powers are cached relative to a reference slightly above the first threshold. They serve every
    lower threshold, until the unsaturated powers become too small to be precise. ``total`` carries
    a rounding error; ``tolerance`` bounds its relative size.
    """

    _WEAK = 2.0**-30

    def __init__(self, losses: Tensor, q: float, gather: Gather | None) -> None:
        self._losses, self._q, self._gather = losses, q, gather
        self.tolerance = 32 * torch.finfo(losses.dtype).eps
        self._blocks = [losses[:, columns] for columns in column_blocks(losses)]
        self._powers = [torch.empty_like(block) for block in self._blocks]
        self._scratch = torch.empty_like(self._blocks[0]), torch.empty_like(self._blocks[0])
        self._computed = False
        self._reference = torch.zeros(losses.shape[0], dtype=losses.dtype, device=losses.device)

    def __call__(self, theta: Tensor) -> Tally:
        if self._q == INFINITE_Q:  # only u itself can serve as the reference
            return take_tally(self._losses, theta, self._q, self._gather)
        if not self._computed or bool((theta > self._reference).any()):
            headroom = 1.0 + min(0.05, 8.0 / self._q)
            self._compute_powers((theta * headroom).clamp(max=torch.finfo(theta.dtype).max))
        above, largest, total = self._read(theta)
        weak = (largest > 0) & (total < self._WEAK)
        if bool(weak.any()):
            self._compute_powers(torch.where(weak, largest.to(theta.dtype), self._reference))
            above, largest, total = self._read(theta)
        # Rounded like the powers themselves, so that each loss equal to u counts as almost exactly one.
        unit = power((largest.to(theta.dtype) / self._reference).clamp_(max=1.0), self._q).double()
        return Tally(above, largest, torch.where(largest > 0, total / unit, 0.0))

    def _compute_powers(self, reference: Tensor) -> None:
        self._reference = torch.where(reference > 0, reference, 1.0)
        self._computed = True
        for block, powers in zip(self._blocks, self._powers, strict=True):
            power(torch.div(block, self._reference.unsqueeze(1), out=powers).clamp_(max=1.0), self._q)

    def _read(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the count above θ, the largest loss ≤ θ, and the sum of powers relative to the reference."""
        result = torch.zeros(3, theta.shape[0], dtype=torch.float64, device=theta.device)
        for block, powers in zip(self._blocks, self._powers, strict=True):
            if block.shape[1] == 0:
                continue
            above, rest = _split(block, theta, *(buffer[:, : block.shape[1]] for buffer in self._scratch))
            result[1] = torch.maximum(result[1], rest.amax(1).double())
            result[0] += block_sum(above)
            result[2] += block_sum(torch.addcmul(powers, powers, above, value=-1.0, out=rest))
        if self._gather is None:
            return result[0], result[1], result[2]
        ranks = self._gather(result)
        return ranks[:, 0].sum(0), ranks[:, 1].amax(0), ranks[:, 2].sum(0)


def column_blocks(losses: Tensor) -> list[slice]:
    """Return column ranges that cover ``losses``: cache-sized on the CPU, a single one elsewhere; at least one."""
    rows, size = losses.shape
    step = max(_BLOCK // max(rows, 1), 256) if host.host_may_look(losses) else max(size, 1)
    return [slice(begin, begin + step) for begin in range(0, max(size, 1), step)]


def _merge(parts: Tensor, q: float) -> Tensor:
    """Merge tallies (parts, 3, R) into one (3, R). Each sum is rebased to the overall largest loss."""
    above, largest, total = parts.unbind(1)
    top = largest.amax(0)
    rebased = total * power(largest / torch.where(top > 0, top, 1.0), q)
    return torch.stack([above.sum(0), top, torch.where(top > 0, rebased.sum(0), 0.0)])


def _block_tally(block: Tensor, theta: Tensor, q: float) -> Tally:
    if block.shape[1] == 0:
        nothing = torch.zeros_like(theta, dtype=torch.float64)
        return Tally(nothing, nothing, nothing)
    above, rest = _split(block, theta)
    largest = rest.amax(1)
    ratio = rest.div_(torch.where(largest > 0, largest, 1.0).unsqueeze(1))
    return Tally(block_sum(above), largest.double(), block_sum(power(ratio, q)))


def _split(
    block: Tensor, theta: Tensor, above: Tensor | None = None, rest: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return a 0/1 float mask of the losses above θ, and the losses with those set to zero."""
    # Writing the comparison as floats is several times faster than a boolean mask.
    above = torch.gt(block, theta.unsqueeze(1), out=torch.empty_like(block) if above is None else above)
    return above, torch.addcmul(block, block, above, value=-1.0, out=rest)


def block_sum(block: Tensor) -> Tensor:
    """Return row sums in float64. A CPU block is small enough to sum in its own dtype, which is much faster."""
    return block.sum(1).double() if host.host_may_look(block) else block.sum(1, dtype=torch.float64)


def power(ratio: Tensor, q: float) -> Tensor:
    """Compute ratio^q in place for ratio ≤ 1, via logarithms. Zeros become a negligible positive value."""
    if q == INFINITE_Q:  # one stays one, everything else becomes zero
        return torch.ge(ratio, 1.0, out=ratio)
    logs = ratio.clamp_(min=torch.finfo(ratio.dtype).tiny).log2_().mul_(q)
    return logs.clamp_(min=lowest_exponent(ratio.dtype)).exp2_()


def lowest_exponent(dtype: torch.dtype) -> float:
    """Return the exponent below which e^x and 2^x are negligible. Near underflow ``exp`` is ten times slower."""
    return -700.0 if dtype == torch.float64 else -80.0
