"""Losses as ordered integers, and logarithms and powers of their ratios.

A *key* is a uint32 that orders like the float32 loss it stands for. Keys are the bits of the float,
with denormals normalised, so that every octave has 2²³ keys and a difference of keys approximates
a difference of logarithms everywhere.

| key | stands for |
|---|---|
| 0 | a pixel that does not count |
| 1 | a threshold below every valid loss, zero losses included |
| 2²³ | a zero loss |
| up to ``TOP`` | positive losses |
| ``TOP + 1``, ``TOP + 2`` | inf, NaN |
"""

import triton
import triton.language as tl

VOID: tl.constexpr = tl.constexpr(0)
EVERYTHING: tl.constexpr = tl.constexpr(1)
ZERO: tl.constexpr = tl.constexpr(1 << 23)
NORMAL: tl.constexpr = tl.constexpr(25 << 23)  # the key of a normal float32 minus its bits
ONE: tl.constexpr = tl.constexpr((127 + 25) << 23)
TOP: tl.constexpr = tl.constexpr(0x7F7FFFFF + (25 << 23))
INFINITE: tl.constexpr = tl.constexpr(0x7F7FFFFF + (25 << 23) + 1)
NOT_A_NUMBER: tl.constexpr = tl.constexpr(0x7F7FFFFF + (25 << 23) + 2)

CUT: tl.constexpr = tl.constexpr(2.0**59)  # from here on a power counts as cut off at 2⁶⁰, which exp2 may round down

# Negative losses are marks, which the solver's first pass finds.
VOID_LOSS: tl.constexpr = tl.constexpr(-1.0)
BAD_VALUE: tl.constexpr = tl.constexpr(-2.0)  # a label that is not a class, or a loss that was negative
BAD_CLASS_WEIGHT: tl.constexpr = tl.constexpr(-3.0)


@triton.jit
def to_key(loss):
    """Return the key of a float32 loss."""
    size = tl.abs(loss)  # -0.0 is a zero loss, not a large key
    small = size < 1.1754943508222875e-38
    bits = tl.where(small, size * 16777216.0, size).to(tl.uint32, bitcast=True)
    key = bits + tl.where(small, ZERO, NORMAL).to(tl.uint32)
    return tl.where(loss < 0, VOID, tl.where(loss != loss, NOT_A_NUMBER, key)).to(tl.uint32)


@triton.jit
def to_loss(key):
    """Return the loss of an int64 key as float64, because a key between denormals is not a float32."""
    small = key < NORMAL + ZERO
    bits = tl.where(small, key - ZERO, key - NORMAL).to(tl.int32)
    value = bits.to(tl.float32, bitcast=True).to(tl.float64)
    return tl.where(key <= ZERO, 0.0, tl.where(small, value * 5.9604644775390625e-08, value))


@triton.jit
def log2_parts(key, other):
    """Return log2(ℓ/ℓ') as an integer and a rest in (-1, 1), for the keys of ℓ and ℓ'.

    With significands f and g, log2(ℓ/ℓ') is the difference of exponents plus (2/ln 2)·atanh(s),
    s = (f-g)/(f+g). f-g is exact, so all digits are right for ℓ near ℓ'. The hardware's logarithm
    has an absolute error of 2⁻²², which q would multiply.
    """
    f = ((key & 0x7FFFFF) | 0x3F800000).to(tl.uint32).to(tl.float32, bitcast=True)
    g = ((other & 0x7FFFFF) | 0x3F800000).to(tl.uint32).to(tl.float32, bitcast=True)
    # Bring f/g between 1/√2 and √2: for neighbours across a power of two, an exponent must not cancel a logarithm.
    halve, double = f > 1.41421354 * g, f * 1.41421354 < g
    f = tl.where(halve, 0.5 * f, tl.where(double, 2.0 * f, f))
    exponent = (key >> 23).to(tl.int32) - (other >> 23).to(tl.int32) + halve.to(tl.int32) - double.to(tl.int32)
    s = (f - g) / (f + g)
    t = s * s
    series = 1.0 + t * (0.33333333 + t * (0.2 + t * (0.14285715 + t * 0.11111111)))
    return exponent.to(tl.float32), s * series * 2.8853900817779268


@triton.jit
def log2_ratio(key, other):
    """Return log2(ℓ/ℓ'), -inf for ℓ = 0."""
    exponent, rest = log2_parts(key, other)
    return tl.where(key > ZERO, exponent + rest, float("-inf"))


@triton.jit
def power(key, other, q, q_low):
    """Return (ℓ/ℓ')^(q + q_low), at most 2⁶⁰.

    The relative error is about 3e-7, or |log2 of the result|·2⁻²⁴ for small results of a large q.
    q has 14 bits, so its product with an exponent is exact, with and without fused multiply-add.
    exp2(q·log2) alone would be off by |log2|·2⁻²⁴, and by the same for each of a million equal losses.
    """
    exponent, rest = log2_parts(key, other)
    large = q * exponent
    small = q * rest + q_low * (exponent + rest)
    log = tl.minimum(large + small, 60.0)
    lost = (large - log) + small
    result = tl.exp2(log) * tl.where(log < 60.0, 1.0 + 0.6931471805599453 * lost, 1.0)
    return tl.where(key > ZERO, result, 0.0)


@triton.jit
def natural_log(x):
    """Return log x of a float32 x ≥ 1, precise near 1; 0, inf and NaN give -inf, inf and NaN."""
    log = log2_ratio(to_key(x), tl.full((1,), ONE, tl.uint32)) * 0.6931471805599453
    return tl.where(x < float("inf"), log, x)
