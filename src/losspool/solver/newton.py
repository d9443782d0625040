"""Search for the saturated set {ℓ > θ} of each pool by bracketed Newton steps: the search on CPUs.

Tensors hold the losses. The search itself runs on Python floats, one small object per pool, because
a tensor operation on a handful of numbers costs as much as one on thousands.

With u the largest loss up to θ, ``total = Σ_{ℓ ≤ θ} (ℓ/u)^q`` and ``room = m - #{ℓ > θ}``, one Newton
step on η is ``log α = log u + log(total/room)/q``.

The saturated set is {ℓ > θ} for the largest float θ with ``total >= room``. Non-negative floats
sort like their bit patterns, so bisection over the bits finds θ within 31 rounds (63 in float64)
for any input. See docs/derivation.md, "The bound on the rounds".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver import sorting
from losspool.solver.powers import INFINITE_Q, Saturated, power

# Losses per block. The temporaries of one block fit in a shared cache; smaller blocks cost more calls.
_BLOCK = 1 << 20
# The search starts from the solution of a sample: a sixteenth of each pool, within these limits.
_SMALLEST_SAMPLE, _LARGEST_SAMPLE = 64, 4096
# A typical search ends within this many rounds. After them, only every third round is a Newton step.
_NEWTON_ROUNDS = 8


class Tally(NamedTuple):
    """Statistics of one pool at a threshold θ."""

    above: float  # #{ℓ > θ}
    largest: float  # u, the largest loss ≤ θ; not positive if there is none
    total: float  # Σ_{ℓ ≤ θ} (ℓ/u)^q


class Survey(NamedTuple):
    """What a search needs to know of one pool before it begins."""

    valid: float
    positives: float
    top: float  # the largest loss; NaN if one is


def column_blocks(losses: Tensor) -> list[Tensor]:
    """Split the losses into cache-sized blocks of columns; at least one."""
    rows, size = losses.shape
    step = max(_BLOCK // max(rows, 1), 256)
    return [losses] if size <= step else list(losses.split(step, 1))


def take_survey(losses: Tensor) -> list[Survey]:
    """Count the valid pixels and the positive losses of each pool, and find its largest loss."""
    rows, size = losses.shape
    result = torch.zeros(3, rows, dtype=torch.float64)
    blocks = column_blocks(losses)
    flags = torch.empty_like(blocks[0])
    for block in blocks:
        lowest, highest = block.aminmax(dim=1)  # NaN if one is
        result[2] = torch.maximum(result[2], highest.double())
        flag = flags[:, : block.shape[1]]
        if not bool((lowest > 0).all()):  # else all are positive
            result[1] += torch.le(block, 0.0, out=flag).sum(1)
        if not bool((lowest >= 0).all()):
            result[0] += torch.lt(block, 0.0, out=flag).sum(1)
    return [Survey(size - void, size - rest, top) for void, rest, top in zip(*result.tolist(), strict=True)]


def search(
    losses: Tensor, surveys: Sequence[Survey], pixels: Sequence[float], solvable: Sequence[bool], q: float
) -> Saturated:
    """Find the saturated losses of each pool. ``pixels`` is m; in a pool that is not solvable all positive ones are.

    Newton converges in two or three rounds from a good start, but slowly near p = 1. After a few
    rounds it therefore alternates with interpolation (the Illinois rule) and with bisection,
    which bounds the number of rounds.
    """
    tallies, theta = _search(losses, surveys, pixels, solvable, q)
    above, largest, total = torch.tensor(tallies, dtype=torch.float64).unbind(1)
    room = torch.tensor(pixels, dtype=torch.float64) - above
    return Saturated(room, _sum_above(losses, theta, [survey.top or 1.0 for survey in surveys]), largest, total)


def _search(
    losses: Tensor,
    surveys: Sequence[Survey],
    pixels: Sequence[float],
    solvable: Sequence[bool],
    q: float,
) -> tuple[list[Tally], list[float]]:
    """Return the tally of each pool at its θ, and θ."""
    starts = _sampled_starts(losses, pixels, q) if any(solvable) else None
    pools = [
        _PoolSearch(losses.dtype, survey, m, q, None if starts is None else starts[index])
        for index, (survey, m) in enumerate(zip(surveys, pixels, strict=True))
    ]
    for pool, survey, is_solvable in zip(pools, surveys, solvable, strict=True):
        if not is_solvable:
            pool.end(0.0, Tally(survey.positives, 0.0, 1.0))
    take = _TallyKeeper(losses, q)
    for index in range(_NEWTON_ROUNDS + 3 * (_digits(losses.dtype) + 1)):  # one bisection in three
        if all(pool.done for pool in pools):
            break
        turn = index % 3 if index >= _NEWTON_ROUNDS else 1
        for pool, tally in zip(pools, take([pool.theta for pool in pools]), strict=True):
            if not pool.done:
                pool.receive(tally, turn)
    return [pool.tally for pool in pools], [pool.theta for pool in pools]


class _PoolSearch:
    """The search in one pool, for the largest float θ at which the condition ``total >= room`` holds."""

    def __init__(self, dtype: torch.dtype, survey: Survey, pixels: float, q: float, start: float | None) -> None:
        self._top, self._pixels, self._q = survey.top, pixels, q
        self._tolerance = 32 * torch.finfo(dtype).eps
        self._to_bits, self._from_bits = _bit_conversions(dtype)
        self._low = 0  # the condition holds here, or low is 0
        self._high = self._to_bits(survey.top) + 1  # the condition fails here
        self._excess_low, self._excess_high = pixels - survey.positives, pixels  # room - total at both ends
        self._held_before = False
        # At a *final* θ every loss above θ is saturated: if the condition also holds there, θ is the solution.
        self._final = start is None
        self._closed = False  # nothing is left between low and high
        self._move(self._high - 1 if start is None else self._to_bits(min(start, survey.top)))
        self.tally = Tally(0.0, 0.0, 0.0)
        self.done = False

    def end(self, theta: float, tally: Tally) -> None:
        self.theta, self.tally, self.done = theta, tally, True

    def receive(self, tally: Tally, turn: int) -> None:
        """Take the tally at θ. Either the search is done, or θ moves."""
        self.tally = tally
        room = self._pixels - tally.above
        excess = room - tally.total
        # Losses that exactly fill the room must not fail by a rounding error: no room would be left.
        holds = excess <= self._tolerance * room or self._bits == 0 or self._closed
        # A step may round to just below α*. Then the losses at α* leave no room, and the search goes on.
        if holds and self._final and room > 0:
            self.done = True
            return
        if holds:
            self._low, self._excess_low = self._bits, excess
            self._excess_high /= 2 if self._held_before else 1
        else:
            self._high = max(self._to_bits(max(tally.largest, 0.0)), self._low + 1)  # no loss lies in (u, θ]
            self._excess_high = excess
            self._excess_low /= 1 if self._held_before else 2
        self._held_before = holds
        width = self._high - self._low
        self._closed = self._final = width <= 1
        if turn == 1 and room > 0 and tally.largest > 0:
            self._move(self._to_bits(min(newton_step(tally, room, self._q), self._top)))
            self._final = True  # a Newton step never falls below α*
        elif turn == 0:
            share = self._excess_low / ((self._excess_low - self._excess_high) or 1.0)
            self._move(self._low + int(width * min(max(share, 0.0), 1.0)))
        else:
            self._move(self._low + width // 2)

    def _move(self, bits: int) -> None:
        self._bits = min(max(bits, self._low), self._high - 1)
        self.theta = self._from_bits(self._bits)


def newton_step(tally: Tally, room: float, q: float) -> float:
    """Return the root of η's tangent: the exact α if {ℓ > θ} is the saturated set."""
    return tally.largest * math.exp(math.log(tally.total / room) / q)


class _TallyKeeper:
    """Tally the same losses at many thresholds, and recompute powers only when necessary.

    Powers are cached relative to a reference slightly above the first threshold. They serve every
    lower threshold, until the unsaturated powers become too small to be precise.
    """

    _WEAK = 2.0**-30

    def __init__(self, losses: Tensor, q: float) -> None:
        self._q = q
        self._blocks = column_blocks(losses)
        self._powers = [torch.empty_like(block) for block in self._blocks] if q < INFINITE_Q else []
        self._scratch = torch.empty_like(self._blocks[0]), torch.empty_like(self._blocks[0])
        self._reference = [0.0] * losses.shape[0]
        self._limit = torch.finfo(losses.dtype).max

    def __call__(self, theta: list[float]) -> list[Tally]:
        if self._q < INFINITE_Q and any(new > old for new, old in zip(theta, self._reference, strict=True)):
            headroom = 1.0 + min(0.05, 8.0 / self._q)
            self._compute_powers([min(new * headroom, self._limit) or 1.0 for new in theta])
        readings = self._read(theta)
        weak = [reading.largest > 0 and reading.sum < self._WEAK for reading in readings]
        if any(weak):
            pools = zip(weak, readings, self._reference, strict=True)
            self._compute_powers([reading.largest if is_weak else old for is_weak, reading, old in pools])
            readings = self._read(theta)
        return [
            Tally(reading.above, reading.largest, reading.sum / reading.unit if reading.largest > 0 else 0.0)
            for reading in readings
        ]

    def _compute_powers(self, reference: list[float]) -> None:
        self._reference = reference
        divisor = self._blocks[0].new_tensor(reference).unsqueeze(1)
        for block, powers in zip(self._blocks, self._powers, strict=True):
            power(torch.div(block, divisor, out=powers).clamp_(max=1.0), self._q)

    def _read(self, theta: list[float]) -> list[_Reading]:
        threshold = self._blocks[0].new_tensor(theta).unsqueeze(1)
        read = self._read_ties if self._q == INFINITE_Q else self._read_powers
        if len(self._blocks) == 1:
            return [_Reading(*pool) for pool in zip(*read(0, threshold).tolist(), strict=True)]
        parts = torch.stack([read(index, threshold) for index in range(len(self._blocks))])  # (blocks, 4, R)
        above, largest, total, unit = parts.double().unbind(1)
        if self._q == INFINITE_Q:  # ties with the largest of a block only count if it is the largest of all
            total = torch.where(largest == largest.amax(0), total, 0.0)
        merged = torch.stack([above.sum(0), largest.amax(0), total.sum(0), unit.amax(0)])
        return [_Reading(*pool) for pool in zip(*merged.tolist(), strict=True)]

    def _read_powers(self, index: int, threshold: Tensor) -> Tensor:
        block, powers = self._blocks[index], self._powers[index]
        above, rest = self._split(block, threshold)
        largest = rest.amax(1)
        torch.addcmul(powers, powers, above, value=-1.0, out=rest)
        # The sum is divided by the power of the largest loss, rounded as all powers are.
        return torch.stack([above.sum(1), largest, rest.sum(1), rest.amax(1)])

    def _read_ties(self, index: int, threshold: Tensor) -> Tensor:
        above, rest = self._split(self._blocks[index], threshold)
        count, largest = above.sum(1), rest.amax(1)
        ties = torch.eq(rest, largest.unsqueeze(1), out=above).sum(1)
        return torch.stack([count, largest, ties, torch.ones_like(ties)])

    def _split(self, block: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Return a 0/1 float mask of the losses above θ, and the losses with those set to zero."""
        above, rest = self._scratch
        if block.shape != above.shape:
            above, rest = above[:, : block.shape[1]], rest[:, : block.shape[1]]
        # Writing the comparison as floats is several times faster than a boolean mask.
        torch.gt(block, threshold, out=above)
        return above, torch.addcmul(block, block, above, value=-1.0, out=rest)


class _Reading(NamedTuple):
    """Statistics of one pool at θ, with powers relative to the keeper's reference."""

    above: float
    largest: float
    sum: float
    unit: float  # the power of the largest loss


def _sum_above(losses: Tensor, theta: list[float], unit: list[float]) -> Tensor:
    """Return Σ_{ℓ > θ} ℓ/unit for each pool."""
    threshold = losses.new_tensor(theta).unsqueeze(1)
    blocks = column_blocks(losses)
    scratch = torch.empty_like(blocks[0])
    total = torch.zeros(losses.shape[0], dtype=torch.float64)
    for block in blocks:
        above = torch.gt(block, threshold, out=scratch[:, : block.shape[1]])
        total += above.mul_(block).sum(1, dtype=torch.float64)  # float32 could overflow
    return total / torch.tensor(unit, dtype=torch.float64)


def _sampled_starts(losses: Tensor, pixels: Sequence[float], q: float) -> list[float] | None:
    """Return α of a sample of each pool, exact up to rounding; None if the pools are too small for one."""
    size = losses.shape[1]
    if size < 2 * _SMALLEST_SAMPLE:
        return None
    sample = losses[:, :: _coprime_stride(size, min(max(size // 16, _SMALLEST_SAMPLE), _LARGEST_SAMPLE))]
    room, _, largest, total = sorting.search(
        sample, [m * sample.shape[1] / size for m in pixels], [True] * len(pixels), min(q, sorting.LARGEST_Q)
    )
    alpha = largest * ((total / room).log() / q).exp()
    return torch.where(alpha > 0, alpha, math.inf).tolist()  # NaN too


def _coprime_stride(size: int, most: int) -> int:
    """Return the smallest stride that takes at most ``most`` samples and is coprime to ``size``.

    A stride that divides the image width would only sample a few of its columns.
    """
    stride = -(-size // most)
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride


def _digits(dtype: torch.dtype) -> int:
    return 63 if dtype == torch.float64 else 31


def _bit_conversions(dtype: torch.dtype) -> tuple[Callable[[float], int], Callable[[int], float]]:
    """Return functions from a non-negative float to its bit pattern, and back."""
    real, integer = (struct.Struct("=d"), struct.Struct("=q")) if dtype == torch.float64 else (_FLOAT32, _INT32)
    return lambda value: integer.unpack(real.pack(value))[0], lambda bits: real.unpack(integer.pack(bits))[0]


_FLOAT32, _INT32 = struct.Struct("=f"), struct.Struct("=i")
