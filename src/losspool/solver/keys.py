"""The arithmetic of ``counting.py``: losses as integer keys, and powers of their ratios.

Keys order like the losses, because they hold the exponent and the significand. Void pixels and zero
losses have the key 0. ``WideKeys`` computes in float64, ``NarrowKeys`` in float32, for devices that
have nothing else.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Powers are capped at 2^60: where one is that large, η is positive whatever its exact value.
_LARGEST_LOG = 60.0


_TOP = 0x7FEF_FFFF_FFFF_FFFF  # the largest float64


class WideKeys:
    """Keys from the bits of a float64; for float32 losses, from the bits that a float32 can set."""

    dtype = torch.float64

    def __init__(self, losses: Tensor, q: float) -> None:
        self._losses, self._q = losses.double(), q
        single = losses.dtype != torch.float64
        self._dropped = 29 if single else 0  # trailing bits
        self._before = (874 << 23) - 1 if single else 0  # the smallest positive float32 gets the key 1
        self.bits = 32 if single else 63

    def keys(self, losses: Tensor | None = None) -> Tensor:
        losses = self._losses if losses is None else losses
        return (losses.view(torch.int64) >> self._dropped).sub_(self._before).clamp_(min=0)

    def values(self, keys: Tensor) -> Tensor:
        keys = keys + self._before if self._before else keys.clamp(1, _TOP)  # 0 would be divided by
        return (keys << self._dropped).view(torch.float64)

    def powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for the losses ℓ and u of two keys, at most 2^60."""
        return self._powers(self.values(keys).div_(self.values(reference)))

    def loss_powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for all losses ℓ, of which ``keys`` are the keys, and for the loss u of ``reference``."""
        return self._powers(self._losses.clamp(min=0.0).div_(self.values(reference)))

    def pixels(self, m: float, share: bool, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return m as a number of pixels, at least 1 and at most ``count``: the integer part, and the rest."""
        wide = count.to(self.dtype)
        pixels = (wide * m if share else torch.full_like(wide, m)).clamp(min=1.0).minimum(wide)
        return torch.zeros_like(count), pixels

    def _powers(self, ratio: Tensor) -> Tensor:
        return ratio.log2_().mul_(self._q).clamp_(max=_LARGEST_LOG).exp2_()


class NarrowKeys:
    """Keys are the bits of a float32."""

    dtype = torch.float32
    bits = 31

    def __init__(self, losses: Tensor, q: float) -> None:
        self._losses = losses
        # q as a number of 14 bits, whose product with an exponent is exact, and the rest.
        significand, exponent = math.frexp(q)
        self._q_high = math.ldexp(round(significand * 2**14), exponent - 14)
        self._q_low = q - self._q_high

    def keys(self, losses: Tensor | None = None) -> Tensor:
        losses = self._losses if losses is None else losses
        return losses.clamp(min=0.0).view(torch.int32).long()

    def values(self, keys: Tensor) -> Tensor:
        return keys.int().view(torch.float32)

    def powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for the losses ℓ and u of two keys, at most 2^60.

        The logarithm of ℓ/u is the difference of the exponents, an integer, plus a rest from the
        significands. Both are multiplied by q separately, which keeps digits that one float32 would lose.
        """
        (f, f_exponent), (g, g_exponent) = self._parts(keys), self._parts(reference)
        halve, double = f > math.sqrt(2) * g, f * math.sqrt(2) < g
        f = torch.where(halve, f * 0.5, torch.where(double, f * 2.0, f))  # now f/g is near 1
        exponent = (f_exponent - g_exponent + halve.int() - double.int()).float()
        s = (f - g) / (f + g)  # log(f/g) = 2·atanh(s), and f - g is exact
        t = s * s
        series = 1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9))))
        rest = s * series * (2 / math.log(2))
        large = self._q_high * exponent
        small = self._q_high * rest + self._q_low * (exponent + rest)
        log = (large + small).clamp(max=_LARGEST_LOG)
        lost = ((large - log) + small).clamp(-1.0, 1.0)
        power = torch.where(log < _LARGEST_LOG, log.exp2() * (1.0 + math.log(2) * lost), 2.0**_LARGEST_LOG)
        return torch.where(keys > 0, power, 0.0)

    def loss_powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        return self.powers(keys, reference)

    def pixels(self, m: float, share: bool, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return m as an integer and a fraction of a pixel: a single float32 would round the room that counts leave."""
        scaled = count * round(m * 2.0**32) if share else torch.full_like(count, round(min(m, 2.0**30) * 2.0**32))
        scaled = scaled.clamp(min=1 << 32).minimum(count << 32)
        return scaled >> 32, (scaled & 0xFFFFFFFF).float() * 2.0**-32

    def _parts(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the significand, in [1, 2), and the exponent."""
        values = self.values(keys)
        denormal = keys < 1 << 23
        bits = torch.where(denormal, values * 2.0**24, values).view(torch.int32)
        exponent = torch.where(denormal, (bits >> 23) - 24, bits >> 23)
        return ((bits & 0x7FFFFF) | 0x3F800000).view(torch.float32), exponent
