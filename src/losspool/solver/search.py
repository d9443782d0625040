"""Search for the saturated set {ℓ > θ} of each pool. Each round takes one tally.

With u and total from the tally at θ, and ``room = m - #{ℓ > θ}``, one Newton step on η is
``log α = log u + log(total/room)/q``.

The saturated set is {ℓ > θ} for the largest float θ with ``total >= room``. Non-negative floats
sort like their bit patterns, so bisection over the bits finds θ within 31 rounds (63 in float64)
for any input. See docs/derivation.md, "The bound on the rounds".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from losspool.solver.tally import Gather, Tally, TallyKeeper, power, take_tally

# The starting point solves a sample of _SAMPLE losses, itself started from _THRESHOLDS thresholds.
# With more than _MOST_SAMPLED_POOLS pools this would take too much memory and is skipped.
_SAMPLE, _THRESHOLDS, _MOST_SAMPLED_POOLS = 4096, 16, 64
# A typical search ends within this many rounds. After them, only every third round is a Newton step.
_NEWTON_ROUNDS = 3


def bisect(
    losses: Tensor, top: Tensor, pixels: Tensor, solvable: Tensor, q: float, gather: Gather | None
) -> tuple[Tensor, Tally]:
    """Find θ and its tally in a fixed number of rounds, so that the host never waits for the device."""
    low = torch.zeros_like(top, dtype=torch.int64)  # the condition holds here, or low is 0
    high = _to_bits(torch.where(solvable, top, 0.0), losses.dtype) + 1  # the condition fails here
    for _ in range(_digits(losses.dtype)):
        middle = low + (high - low) // 2
        tally = take_tally(losses, _from_bits(middle, losses.dtype), q, gather)
        holds = tally.total >= pixels - tally.above
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    theta = _from_bits(low, losses.dtype)
    return theta.double(), take_tally(losses, theta, q, gather)


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
) -> tuple[Tensor, Tally]:
    """Find θ and its tally by bracketed Newton steps, and stop as soon as every pool is solved.

    Newton converges in two or three rounds from a good start, but slowly near p = 1. After a few
    rounds it therefore alternates with interpolation (the Illinois rule) and with bisection,
    which bounds the number of rounds.
    """
    take = TallyKeeper(losses, q, gather)
    low = torch.zeros_like(top, dtype=torch.int64)
    high = _to_bits(torch.where(solvable, top, 0.0), losses.dtype) + 1
    excess_low, excess_high = pixels - positives, pixels  # room - total at both ends
    held_before = torch.zeros_like(solvable)
    begin = high - 1 if start is None else _to_bits(start, losses.dtype)
    bits = begin.maximum(low).minimum(high - 1)
    # At a *final* θ every loss above θ is saturated: if the condition also holds there, θ is the solution.
    final = ~solvable if start is not None else torch.ones_like(solvable)
    closed = torch.zeros_like(solvable)  # nothing is left between low and high
    done = torch.zeros_like(solvable)
    tally = take(_from_bits(bits, losses.dtype))
    for index in range(_NEWTON_ROUNDS + 3 * (_digits(losses.dtype) + 1)):  # one bisection in three
        room = pixels - tally.above
        excess = room - tally.total
        # Losses that exactly fill the room must not fail by a rounding error: no room would be left.
        holds = (excess <= take.tolerance * room) | (bits == 0) | closed
        # A step may round to just below α*. Then the losses at α* leave no room, and the search goes on.
        done = done | (holds & final & ((room > 0) | ~solvable))
        if bool(done.all()):
            break
        low = torch.where(holds, bits, low)
        high = torch.where(holds, high, _to_bits(tally.largest, losses.dtype).maximum(low + 1))  # none in (u, θ]
        excess_low, excess_high = (
            torch.where(holds, excess, torch.where(held_before, excess_low, excess_low / 2)),
            torch.where(holds, torch.where(held_before, excess_high / 2, excess_high), excess),
        )
        held_before = holds
        proposal = low + (high - low) // 2
        closed = high - low <= 1
        final = closed
        turn = index % 3 if index >= _NEWTON_ROUNDS else 1
        if turn == 1:
            usable = (room > 0) & (tally.largest > 0)
            step = torch.where(usable, newton_step(tally.largest, tally.total, room, q), 0.0)
            step_bits = _to_bits(step, losses.dtype).maximum(low).minimum(high - 1)
            proposal = torch.where(usable, step_bits, proposal)
            final = final | usable  # a Newton step never falls below α*
        elif turn == 0:
            share = (excess_low / (excess_low - excess_high)).clamp(0.0, 1.0)
            proposal = (low + ((high - low) * share).long()).minimum(high - 1)
        bits = torch.where(done, bits, proposal)
        fresh = take(_from_bits(bits, losses.dtype))
        tally = Tally(*(torch.where(done, old, new) for old, new in zip(tally, fresh, strict=True)))
    return _from_bits(bits, losses.dtype).double(), tally


def newton_step(largest: Tensor, total: Tensor, room: Tensor, q: float) -> Tensor:
    """Return the root of η's tangent: the exact α if {ℓ > θ} is the saturated set."""
    return largest * ((total / room).log() / q).exp()


def sampled_start(losses: Tensor, pixels: Tensor, q: float) -> Tensor | None:
    """Return α of a sample of at most 4,096 losses per pool; None if the pools are small or too many."""
    rows, size = losses.shape
    if size <= 2 * _SAMPLE or rows > _MOST_SAMPLED_POOLS:
        return None
    sample = losses[:, :: _coprime_stride(size, _SAMPLE)].contiguous()
    pixels = pixels * (sample.shape[1] / size)
    top = sample.amax(1).double()
    positives = torch.gt(sample, 0.0, out=torch.empty_like(sample)).sum(1).double()
    solvable = torch.isfinite(top) & (positives >= pixels)
    start = _best_of_many_steps(sample, pixels, q)
    _, tally = newton(sample, top, positives, pixels, solvable, q, start=start, gather=None)
    room = pixels - tally.above
    usable = solvable & (room > 0) & (tally.largest > 0)
    return torch.where(usable, newton_step(tally.largest, tally.total, room, q), math.inf)


def _best_of_many_steps(sample: Tensor, pixels: Tensor, q: float) -> Tensor:
    """Take a Newton step from each of several thresholds and return the smallest.

    A Newton step never falls below α*, so the smallest step is the best. The thresholds are drawn
    from the sample, and one outer quotient evaluates all of them.
    """
    thresholds = sample[:, :: sample.shape[1] // _THRESHOLDS].clamp(min=torch.finfo(sample.dtype).tiny)  # (R, T)
    ratio = sample.unsqueeze(1) / thresholds.unsqueeze(2)  # (R, T, S)
    above = torch.gt(ratio, 1.0, out=torch.empty_like(ratio))
    room = pixels.unsqueeze(1) - above.sum(2).double()
    total = power(ratio.mul_(above.neg_().add_(1.0)), q).sum(2).double()
    steps = newton_step(thresholds.double(), total, room, q)
    return torch.where(room > 0, steps, math.inf).amin(1)


def _coprime_stride(size: int, most: int) -> int:
    """Return the smallest stride that takes at most ``most`` samples and is coprime to ``size``.

    A stride that divides the image width would only sample a few of its columns.
    """
    stride = -(-size // most)
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride


def _digits(dtype: torch.dtype) -> int:
    return torch.iinfo(_integer_type(dtype)).bits - 1


def _integer_type(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype == torch.float64 else torch.int32


def _to_bits(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).contiguous().view(_integer_type(dtype)).long()


def _from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    return bits.to(_integer_type(dtype)).view(dtype)
