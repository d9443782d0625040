"""What all searches share: q from p, powers (ℓ/u)^q, running sums, and the form of their results."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from losspool.solver import host

Number = TypeVar("Number", float, Tensor)

# Stands for q = ∞, at p = 1. Every power of a ratio below one underflows to zero and 1^q is one, which is
# the limit p → 1. Unlike ∞, it gives zero when multiplied by zero.
INFINITE_Q = 1e30


# Powers are cut off at 2^60 before they are added up. Where one is cut, η is positive (docs/derivation.md, "Sorting").
LARGEST_LOG = 60.0
# From here on a power counts as cut: exp2 may round 2^60 down.
CUT = 2.0**59
# A sum of powers below this is not precise in float32.
WEAK = 2.0**-30


def conjugate_exponent(p: float) -> float:
    """Return q = p / (p - 1), or ``INFINITE_Q`` for p = 1."""
    return min(1.0 + 1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q


def weight_exponent(p: float) -> float:
    """Return q - 1 without cancellation."""
    return min(1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q


def is_uniform(p: float) -> bool:
    """Return whether p is ∞, or so large that q rounds to one."""
    return conjugate_exponent(p) == 1.0


def power(ratio: Tensor, q: float) -> Tensor:
    """Compute ratio^q in place for ratio ≤ 1, via logarithms. Zeros become a negligible positive value."""
    if q == INFINITE_Q:  # one stays one, everything else becomes zero
        return torch.ge(ratio, 1.0, out=ratio)
    logs = ratio.clamp_(min=torch.finfo(ratio.dtype).tiny).log2_().mul_(q)
    return logs.clamp_(min=lowest_exponent(ratio.dtype)).exp2_()


def lowest_exponent(dtype: torch.dtype) -> float:
    """Return the exponent below which e^x and 2^x are negligible. Near underflow ``exp`` is ten times slower."""
    return -700.0 if dtype == torch.float64 else -80.0


def smallest(dtype: torch.dtype) -> float:
    """Return the smallest positive number."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


def relative_powers(losses: Tensor, reference: Tensor, q: float, dtype: torch.dtype) -> Tensor:
    """Return (ℓ/u)^q in ``dtype``, for ``losses`` ℓ ≥ 0. u is ``reference``, (R, 1).

    It may be inf in float64, and is at most 2^100 in float32.
    """
    reference = reference.clamp(min=smallest(reference.dtype))
    if dtype == torch.float64:
        ratio = losses / reference.to(dtype)
        return ratio.log2_().mul_(q).exp2_()
    # The logarithm of ℓ/u is the difference of the exponents, an integer, plus a rest from the significands. Both are
    # multiplied by q separately, which keeps digits that one float32 would lose.
    f, f_exponent = _significand_and_exponent(losses)
    g, g_exponent = _significand_and_exponent(reference)
    halve, double = f > math.sqrt(2) * g, f * math.sqrt(2) < g
    f = f * (1.0 - 0.5 * halve + 1.0 * double)  # now f/g is near 1
    exponent = (f_exponent - g_exponent + halve.int() - double.int()).to(dtype)
    s = (f - g) / (f + g)  # log(f/g) = 2·atanh(s), and f - g is exact
    t = s * s
    series = 1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9))))
    rest = s * series * (2 / math.log(2))
    # q as a number of 14 bits, whose product with an exponent is exact, and the rest.
    significand, q_exponent = math.frexp(q)
    q_high = math.ldexp(round(significand * 2**14), q_exponent - 14)
    large, small = q_high * exponent, q_high * rest + (q - q_high) * (exponent + rest)
    log = (large + small).clamp(max=100.0)
    lost = ((large - log) + small).clamp(-1.0, 1.0)
    power = log.exp2() * (1.0 + math.log(2) * lost * (log < 100.0))
    return power * (losses > 0)


def _significand_and_exponent(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return f in [1/2, 1) and e with f·2^e = number, for positive float32. Apple's MPS has no ``torch.frexp``."""
    small = (numbers < 2.0**-100).int()  # denormal numbers among them, which have no exponent of their own
    bits = torch.where(small > 0, numbers * 2.0**100, numbers).view(torch.int32)
    significand = (bits & 0x7FFFFF | 0x3F000000).view(torch.float32)
    return significand, (bits >> 23 & 0xFF) - (126 + 100 * small)


def running_sums(values: Tensor) -> Tensor:
    """Return ``values.cumsum(-1)``. On other devices than CPUs, torch's own adds up floats in any order."""
    if host.host_may_look(values):
        return values.cumsum(-1)
    size = values.shape[-1]
    chunk = 1 << ((size - 1).bit_length() + 1) // 2
    upper = torch.ones(chunk, chunk, dtype=values.dtype, device=values.device).triu_()
    if size % chunk:
        values = torch.nn.functional.pad(values, (0, -size % chunk))
    with host.full_precision(values):
        sums = values.unflatten(-1, (-1, chunk)) @ upper
        before = sums[..., :-1, -1]  # of each chunk but the last
        sums[..., 1:, :] += (before @ upper[: before.shape[-1], : before.shape[-1]]).unsqueeze(-1)
    return sums.flatten(-2)[..., :size]


def pixel_numbers(m: float, share: bool, count: Tensor, dtype: torch.dtype) -> tuple[Tensor | int, Tensor]:
    """Return m as a number of pixels, at least 1 and at most ``count``: an integer part, and the rest in ``dtype``.

    A pool without pixels may have m = 1. In float64 the rest is all of m. A float32 would round the room that counts
    leave.
    """
    if dtype == torch.float64:
        wide = count.to(dtype)
        return 0, (wide * m).clamp_(min=1.0) if share else torch.full_like(wide, max(m, 1.0)).minimum(wide)
    scaled = count * round(m * 2.0**32) if share else torch.full_like(count, round(min(m, 2.0**30) * 2.0**32))
    scaled = scaled.clamp_(min=1 << 32).minimum(count << 32)
    return scaled >> 32, (scaled & 0xFFFFFFFF).to(dtype) * 2.0**-32


class Saturated(NamedTuple, Generic[Number]):
    """What a search finds out about the saturated losses {ℓ > θ}: of one pool, or tensors (R,) of all."""

    room: Number  # m minus their number
    sum: Number  # their sum, relative to the largest loss of the pool
    largest: Number  # u, to which powers are relative: the largest other loss, or another number near it
    total: Number  # Σ_{ℓ ≤ θ} (ℓ/u)^q


class Searched(NamedTuple):
    """The saturated losses of each pool, and the facts that do not depend on them; all have shape ``(R,)``."""

    saturated: Saturated[Tensor]
    valid: Tensor  # n
    pixels: Tensor  # m
    top: Tensor  # the largest loss
    uniform: Tensor
    broken: Tensor
