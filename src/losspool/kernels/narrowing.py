"""Narrow a pool's bracket by what one counting pass found.

A pass leaves a *record* of int64 numbers per pool: the counts of BINS bins between lo and hi, then
the slots below. The state of the search is the bracket lo < hi of keys with η(lo) ≤ 0 < η(hi), and
the number of losses above hi. docs/kernels.md derives the bounds.
"""

import triton
import triton.language as tl

from losspool.kernels.keys import CUT, EVERYTHING, power

BITS: tl.constexpr = tl.constexpr(10)
BINS: tl.constexpr = tl.constexpr(1 << 10)

# Slots of a record, counted from the end of its bins.
LO: tl.constexpr = tl.constexpr(0)
HI: tl.constexpr = tl.constexpr(1)
OVER: tl.constexpr = tl.constexpr(2)  # losses above hi
VALID: tl.constexpr = tl.constexpr(3)  # n; this and what follows is written by the first pass only
# How many programs saw one of these.
INFINITE_LOSSES: tl.constexpr = tl.constexpr(4)
NAN_LOSSES: tl.constexpr = tl.constexpr(5)
BAD_VALUES: tl.constexpr = tl.constexpr(6)  # a negative loss, or a label that is not a class
BAD_WEIGHTS: tl.constexpr = tl.constexpr(7)  # a negative class weight
SLOTS: tl.constexpr = tl.constexpr(8)


@triton.jit
def bin_shift(width):
    """Return the least s with width ≤ BINS·2^s, from the exponent of width - 1 as a float64."""
    exponent = ((width - 1).to(tl.float64).to(tl.int64, bitcast=True) >> 52) - 1023
    return tl.where(width > BINS, exponent + 1 - BITS, 0)


@triton.jit
def pixels(first_record, m_bits, SHARE: tl.constexpr):
    """Return n and m of a pool as float64."""
    n = tl.load(first_record + BINS + VALID).to(tl.float64)
    m = m_bits.to(tl.int64).to(tl.float64, bitcast=True)  # the interpreter makes a small int an int32
    if SHARE:
        m = m * n
    return n, tl.minimum(tl.maximum(m, 1.0), n)


@triton.jit
def read_pass(record, partials, P, P2: tl.constexpr):
    """Return the bracket of a finished pass, the upper edges of its bins, their counts, and S(lo)."""
    lo, hi, over = tl.load(record + BINS + LO), tl.load(record + BINS + HI), tl.load(record + BINS + OVER)
    shift = bin_shift(hi - lo)
    d = tl.arange(0, BINS).to(tl.int64)
    edges = tl.minimum(lo + ((d + 1) << shift), hi)
    count = tl.load(record + d)
    part = tl.arange(0, P2)
    below = tl.sum(tl.load(partials + part, mask=part < P, other=0.0), 0).to(tl.float32)
    return lo, hi, over, shift, edges, count, below


@triton.jit
def narrow(
    record,
    first_record,
    partials,
    P,
    q,
    q_low,
    m_bits,
    SHARE: tl.constexpr,
    UNIFORM: tl.constexpr,
    P2: tl.constexpr,
):
    """Return the new bracket (lo, hi] of a pool, and how many losses lie above hi.

    At the upper edge e of every bin, c = m - #{ℓ > e} is exact, and the losses of a bin lie between
    its edges, so the counts bound Σ_{ℓ ≤ e} ℓ^q from both sides.
    """
    lo, hi, over, shift, edges, count, below = read_pass(record, partials, P, P2)
    n, m = pixels(first_record, m_bits, SHARE)
    d = tl.arange(0, BINS)
    above = over + tl.sum(count, 0) - tl.cumsum(count, 0)
    whole = tl.floor(m)
    room = (whole.to(tl.int64) - above).to(tl.float32) + (m - whole).to(tl.float32)
    # Powers are relative to the lowest edge that has room. Far above it they are cut off, and η is positive there: the
    # room of that edge may drown in a sum of powers that are cut.
    first = tl.min(tl.where(room > 0, d, BINS - 1), 0)
    anchor = tl.minimum(lo + ((first.to(tl.int64) + 1) << shift), hi)
    edge_power = power(edges, anchor, q, q_low)
    lower_edges = tl.where(shift == 0, edges, lo + (d.to(tl.int64) << shift))  # a bin of one key has no width
    lower_power = power(lower_edges, anchor, q, q_low)
    start = below * power(lo, anchor, q, q_low)
    most = start + tl.cumsum(count.to(tl.float32) * edge_power, 0)
    least = start + tl.cumsum(count.to(tl.float32) * lower_power, 0)
    cut = edge_power >= CUT
    positive = (room > 0) & (cut | (room * edge_power > most))
    not_positive = (room <= 0) | (~cut & (room * edge_power <= least))
    new_hi = tl.min(tl.where(positive, edges, hi), 0)
    new_lo = tl.max(tl.where(not_positive & (edges < new_hi), edges, lo), 0)
    new_over = over + tl.sum(tl.where(edges > new_hi, count, 0), 0)
    uniform = (n >= 0) if UNIFORM else (m >= n)
    unsolved = hi > lo
    lo = tl.where(uniform, EVERYTHING, tl.where(unsolved, new_lo, lo))
    hi = tl.where(uniform, EVERYTHING, tl.where(unsolved, new_hi, hi))
    return lo, hi, tl.where(unsolved, new_over, over)
