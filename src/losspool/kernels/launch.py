"""How the host starts kernels, and how numbers reach them."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

INFINITE_Q = 1e30
"""Stands for q = ∞, at p = 1: every power of a ratio below one vanishes, and 1^q is one."""


OPTIONS = {"enable_fp_fusion": True}
"""Of the compiler, for every kernel. Triton's default differs between versions; the kernels are right either way."""


ASSERTING = {"debug": True, "sanitize_overflow": False}
"""Of kernels with assertions: Triton leaves these out by default, and with them come checks that we do not need."""


def run(kernel: Any, programs: int, *arguments: Any, warps: int = 4, asserting: bool = False, **constants: Any) -> None:
    """Launch that many programs of a kernel. Every launch goes through here."""
    if programs:
        options = OPTIONS | ASSERTING if asserting else OPTIONS
        kernel[(programs,)](*arguments, **constants, num_warps=warps, **options)


class Exponents(NamedTuple):
    """p in the forms that kernels need."""

    q: float
    """14 bits of the conjugate exponent q."""
    q_low: float
    """The rest of q."""
    less_one: float
    """q - 1, without cancellation."""
    inverse_p_bits: int
    uniform: bool
    """p is ∞, or so large that q rounds to one."""


def exponents(p: float) -> Exponents:
    less_one = min(1.0 / (p - 1.0), INFINITE_Q) if p > 1.0 else INFINITE_Q
    q = min(1.0 + less_one, INFINITE_Q)
    mantissa, exponent = math.frexp(q)
    head = math.ldexp(round(mantissa * 2**14), exponent - 14)
    return Exponents(head, q - head if q < INFINITE_Q else 0.0, less_one, float64_bits(1.0 / p), q == 1.0)


def float64_bits(x: float) -> int:
    """Return a float64 as an int64, because Triton passes a Python float as float32."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


def power_of_two(x: int) -> int:
    """Return the least power of two that is not less than x."""
    return 1 << max(x - 1, 0).bit_length()


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)
