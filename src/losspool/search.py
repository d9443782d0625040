"""The search for the saturated set {ℓ > θ} of each pool, in rounds that each read every loss once.

A round takes a *census* at a threshold θ: how many losses lie above it, which is the largest of
the others (u), and Σ_{ℓ ≤ θ} (ℓ/u)^q, the log-sum-exp of q·log ℓ relative to its largest term.
With ``room = m - #{ℓ > θ}``, one Newton step on η is ``log α = log u + log(total/room)/q``.

The saturated set is {ℓ > θ} for the largest float θ at which ``total >= room``. Non-negative
floats order like their bit patterns, so bisection over the bits finds it in 31 rounds (63 in
float64) for every input: see docs/derivation.md, "The bound on the rounds".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from losspool import _device

# Blocks of this many losses keep the temporaries of a round in a core's cache.
_BLOCK = 1 << 18
# The start is looked for among so many thresholds, in samples of so many losses, in so much memory.
_THRESHOLDS, _SAMPLE, _SAMPLE_BUDGET = 32, 4096, 1 << 22
# A typical search ends within these rounds; after them Newton takes every third round only.
_NEWTON_ROUNDS = 3

Gather = Callable[[Tensor], Tensor]
"""Maps a tensor of shape S to the stack ``(ranks, *S)`` of all ranks' tensors."""


class Census(NamedTuple):
    """What a round learns about each pool; fields of shape ``(R,)``, float64."""

    above: Tensor  # #{ℓ > θ}
    largest: Tensor  # u, the largest loss ≤ θ; not positive where there is none
    total: Tensor  # Σ_{ℓ ≤ θ} (ℓ/u)^q


def bisect(
    losses: Tensor, top: Tensor, pixels: Tensor, solvable: Tensor, q: float, gather: Gather | None
) -> tuple[Tensor, Census]:
    """θ and its census by a fixed number of rounds, so that the host never waits for the device."""
    low = torch.zeros_like(top, dtype=torch.int64)  # the condition holds here, or low is 0
    high = _to_bits(torch.where(solvable, top, 0.0), losses.dtype) + 1  # it fails here
    for _ in range(_digits(losses.dtype)):
        middle = low + (high - low) // 2
        census = _take_census(losses, _from_bits(middle, losses.dtype), q, gather)
        holds = census.total >= pixels - census.above
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    theta = _from_bits(low, losses.dtype)
    return theta.double(), _take_census(losses, theta, q, gather)


def newton(
    losses: Tensor,
    top: Tensor,
    positives: Tensor,
    pixels: Tensor,
    solvable: Tensor,
    q: float,
    *,
    start: Tensor | None,
    gather: Gather | None,
) -> tuple[Tensor, Census]:
    """The same by Newton's steps inside the bracket, which end as soon as every pool is solved.

    Newton converges in two or three rounds from a good start and slowly near p = 1. So after
    a few rounds it alternates with interpolation (the Illinois rule) and with bisection, which
    bounds their number.
    """
    low = torch.zeros_like(top, dtype=torch.int64)
    high = _to_bits(torch.where(solvable, top, 0.0), losses.dtype) + 1
    excess_low, excess_high = pixels - positives, pixels  # room - total at both ends
    held_before = torch.zeros_like(solvable)
    begin = high - 1 if start is None else _to_bits(start, losses.dtype)
    bits = begin.maximum(low).minimum(high - 1)
    # A *final* θ has no loss above it that is not saturated: if the condition holds there, it is found.
    final = ~solvable if start is not None else torch.ones_like(solvable)
    done = torch.zeros_like(solvable)
    census = _take_census(losses, _from_bits(bits, losses.dtype), q, gather)
    for index in range(_NEWTON_ROUNDS + 3 * (_digits(losses.dtype) + 1)):  # one bisection in three
        room = pixels - census.above
        excess = room - census.total
        holds = (excess <= 0) | (bits == 0)
        # A step may round to just below α*: then the losses at α* leave no room, and it is not the end.
        done = done | (holds & final & ((room > 0) | ~solvable))
        if bool(done.all()):
            break
        low = torch.where(holds, bits, low)
        high = torch.where(holds, high, _to_bits(census.largest, losses.dtype))  # no loss lies between u and θ
        excess_low, excess_high = (
            torch.where(holds, excess, torch.where(held_before, excess_low, excess_low / 2)),
            torch.where(holds, torch.where(held_before, excess_high / 2, excess_high), excess),
        )
        held_before = holds
        proposal = low + (high - low) // 2
        final = high - low <= 1
        turn = index % 3 if index >= _NEWTON_ROUNDS else 1
        if turn == 1:
            usable = (room > 0) & (census.largest > 0)
            step = torch.where(usable, newton_step(census, room, q), 0.0)
            step_bits = _to_bits(step, losses.dtype).maximum(low).minimum(high - 1)
            proposal = torch.where(usable, step_bits, proposal)
            final = final | usable  # a Newton step never falls below α*
        elif turn == 0:
            share = excess_low / (excess_low - excess_high)
            proposal = (low + ((high - low) * share).long()).maximum(low).minimum(high - 1)
        bits = torch.where(done, bits, proposal)
        fresh = _take_census(losses, _from_bits(bits, losses.dtype), q, gather)
        census = Census(*(torch.where(done, old, new) for old, new in zip(census, fresh, strict=True)))
    return _from_bits(bits, losses.dtype).double(), census


def newton_step(census: Census, room: Tensor, q: float) -> Tensor:
    """The root of η's tangent: the α that would be right if {ℓ > θ} were the saturated set."""
    return census.largest * ((census.total / room).log() / q).exp()


def sampled_start(losses: Tensor, pixels: Tensor, q: float) -> Tensor | None:
    """An estimate of α from at most 4,096 losses of each pool; None where pools are too many for it.

    A Newton step never falls below α*, so the least of the steps from many thresholds is the
    best of them. With thresholds out of the sample one product of the two gives them all.
    """
    rows, size = losses.shape
    most = min(_SAMPLE, _SAMPLE_BUDGET // (_THRESHOLDS * max(rows, 1)))
    if most < 2 * _THRESHOLDS or size == 0:
        return None
    sample = losses[:, :: _coprime_stride(size, most)]
    room = (pixels * (sample.shape[1] / size)).unsqueeze(1)
    thresholds = sample[:, :: -(-sample.shape[1] // _THRESHOLDS)].clamp(min=torch.finfo(losses.dtype).tiny)  # (R, T)
    ratio = sample.unsqueeze(1) / thresholds.unsqueeze(2)  # (R, T, S)
    above = torch.gt(ratio, 1.0, out=torch.empty_like(ratio))
    room = room - above.sum(2, dtype=torch.float64)
    total = _power(ratio.mul_(above.neg_().add_(1.0)), q).sum(2, dtype=torch.float64)
    steps = newton_step(Census(room, thresholds.double(), total), room, q)
    return torch.where(room > 0, steps, math.inf).amin(1)


def _coprime_stride(size: int, most: int) -> int:
    """The least stride that takes at most ``most`` samples and shares no factor with ``size``.

    A stride that divides an image's width would see a few of its columns only.
    """
    stride = -(-size // most)
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride


def column_blocks(losses: Tensor) -> list[slice]:
    """Column ranges that cover ``losses``: cache-sized on the CPU, one elsewhere, never none."""
    rows, size = losses.shape
    step = max(_BLOCK // max(rows, 1), 256) if _device.host_may_look(losses) else max(size, 1)
    return [slice(begin, begin + step) for begin in range(0, max(size, 1), step)]


def _take_census(losses: Tensor, theta: Tensor, q: float, gather: Gather | None) -> Census:
    blocks = [torch.stack(_block_census(losses[:, columns], theta, q)) for columns in column_blocks(losses)]
    parts = torch.stack(blocks) if gather is None else gather(_merge(torch.stack(blocks), q))
    above, largest, total = _merge(parts, q).unbind()
    return Census(above, largest, total)


def _merge(parts: Tensor, q: float) -> Tensor:
    """One census, (3, R), of several, (parts, 3, R): each sum is rebased to the largest loss of all."""
    above, largest, total = parts.unbind(1)
    top = largest.amax(0)
    rebased = total * _power(largest / torch.where(top > 0, top, 1.0), q)
    return torch.stack([above.sum(0), top, torch.where(top > 0, rebased.sum(0), 0.0)])


def _block_census(block: Tensor, theta: Tensor, q: float) -> Census:
    if block.shape[1] == 0:
        nothing = torch.zeros_like(theta, dtype=torch.float64)
        return Census(nothing, nothing, nothing)
    # A comparison written as 0.0 and 1.0 is several times faster than a boolean mask.
    above = torch.gt(block, theta.unsqueeze(1), out=torch.empty_like(block))
    rest = torch.addcmul(block, block, above, value=-1.0)
    largest = rest.amax(1)
    ratio = rest.div_(torch.where(largest > 0, largest, 1.0).unsqueeze(1))
    return Census(block_sum(above), largest.double(), block_sum(_power(ratio, q)))


def block_sum(block: Tensor) -> Tensor:
    """Row sums in float64. A CPU block is small enough to be summed in its own type, far faster."""
    return block.sum(1).double() if _device.host_may_look(block) else block.sum(1, dtype=torch.float64)


def _power(ratio: Tensor, q: float) -> Tensor:
    """ratio^q for ratio ≤ 1, in logs, written over ratio; what would be zero is clamped to a trifle."""
    logs = ratio.clamp_(min=torch.finfo(ratio.dtype).tiny).log2_().mul_(q)
    return logs.clamp_(min=lowest_exponent(ratio.dtype)).exp2_()


def lowest_exponent(dtype: torch.dtype) -> float:
    """Powers below e^this (or 2^this) are negligible, and near its underflow ``exp`` takes ten times as long."""
    return -700.0 if dtype == torch.float64 else -80.0


def _digits(dtype: torch.dtype) -> int:
    return torch.iinfo(_integer_type(dtype)).bits - 1


def _integer_type(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype == torch.float64 else torch.int32


def _to_bits(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).contiguous().view(_integer_type(dtype)).long()


def _from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    return bits.to(_integer_type(dtype)).view(dtype)
