"""Search for the saturated losses {ℓ > θ} of each pool between two bounds: where Newton's method does not converge.

The saturated set is {ℓ > θ} for the largest float θ with ``total >= room``, where
``total = Σ_{ℓ ≤ θ} (ℓ/u)^q`` is relative to u, the largest loss up to θ, and ``room = m - #{ℓ > θ}``.
Non-negative floats sort like their bit patterns, so bisection over the bits finds θ within 31 rounds
(63 in float64) for any input. Newton steps in between mostly end it sooner. See docs/derivation.md,
"The bound on the rounds".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.solver.powers import INFINITE_Q, WEAK, Saturated, power
from losspool.solver.survey import Survey, column_blocks, sum_above

# The search begins with some Newton steps. After them, only every third round is one.
_NEWTON_ROUNDS = 8


class Tally(NamedTuple):
    """Statistics of one pool at a threshold θ."""

    above: float  # #{ℓ > θ}
    largest: float  # u, the largest loss ≤ θ; not positive if there is none
    total: float  # Σ_{ℓ ≤ θ} (ℓ/u)^q


def search(
    losses: Tensor, surveys: list[Survey], pixels: list[float], starts: list[float], q: float
) -> list[Saturated[float]]:
    """Alternate Newton steps with interpolation (the Illinois rule) and bisection, which bounds the rounds."""
    pools = [
        _PoolSearch(losses.dtype, survey, m, q, start) for survey, m, start in zip(surveys, pixels, starts, strict=True)
    ]
    take = _TallyKeeper(losses, q)
    for index in range(_NEWTON_ROUNDS + 3 * (_digits(losses.dtype) + 1)):  # one bisection in three
        if all(pool.done for pool in pools):
            break
        turn = index % 3 if index >= _NEWTON_ROUNDS else 1
        for pool, tally in zip(pools, take([pool.theta for pool in pools]), strict=True):
            if not pool.done:
                pool.receive(tally, turn)
    theta = losses.new_tensor([pool.theta for pool in pools]).unsqueeze(1)
    sums = sum_above(losses, theta, [survey.top for survey in surveys])
    return [
        Saturated(m - pool.tally.above, total, pool.tally.largest, pool.tally.total)
        for pool, m, total in zip(pools, pixels, sums, strict=True)
    ]


class _PoolSearch:
    """The search in one pool, for the largest float θ at which the condition ``total >= room`` holds."""

    def __init__(self, dtype: torch.dtype, survey: Survey, pixels: float, q: float, start: float) -> None:
        self._top, self._pixels, self._q = survey.top, pixels, q
        self._tolerance = 32 * torch.finfo(dtype).eps
        self._to_bits, self._from_bits = _bit_conversions(dtype)
        self._low = 0  # the condition holds here, or low is 0
        self._high = self._to_bits(survey.top) + 1  # the condition fails here
        self._excess_low, self._excess_high = pixels - survey.positives, pixels  # room - total at both ends
        self._held_before = False
        # At a *final* θ every loss above θ is saturated: if the condition also holds there, θ is the solution.
        self._final = start >= survey.top
        self._closed = False  # nothing is left between low and high
        self._move(self._to_bits(min(start, survey.top)))
        self.tally = Tally(0.0, 0.0, 0.0)
        self.done = False

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
            before = self._bits
            self._move(self._to_bits(min(newton_step(tally, room, self._q), self._top)))
            self._final = True  # a Newton step never falls below α*
            if self._bits < before and tally.largest <= self.theta:  # no loss lies between: the same tally
                self.receive(tally, turn)
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
        weak = [reading.largest > 0 and reading.sum < WEAK for reading in readings]
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


def _digits(dtype: torch.dtype) -> int:
    return 63 if dtype == torch.float64 else 31


def _bit_conversions(dtype: torch.dtype) -> tuple[Callable[[float], int], Callable[[int], float]]:
    """Return functions from a non-negative float to its bit pattern, and back."""
    real, integer = (struct.Struct("=d"), struct.Struct("=q")) if dtype == torch.float64 else (_FLOAT32, _INT32)
    return lambda value: integer.unpack(real.pack(value))[0], lambda bits: real.unpack(integer.pack(bits))[0]


_FLOAT32, _INT32 = struct.Struct("=f"), struct.Struct("=i")
