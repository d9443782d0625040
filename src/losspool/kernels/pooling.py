"""The solver's kernels: counting passes, the result of each pool, their average, and the weights."""

import triton
import triton.language as tl

from losspool.kernels.keys import (
    BAD_CLASS_WEIGHT,
    BAD_VALUE,
    INFINITE,
    NOT_A_NUMBER,
    TOP,
    VOID,
    VOID_LOSS,
    ZERO,
    log2_ratio,
    power,
    to_key,
    to_loss,
)
from losspool.kernels.narrowing import (
    BAD_VALUES,
    BAD_WEIGHTS,
    BINS,
    HI,
    INFINITE_LOSSES,
    LO,
    NAN_LOSSES,
    OVER,
    SLOTS,
    VALID,
    bin_shift,
    narrow,
    pixels,
    read_pass,
)

# Columns of the table of results, float64, one row per pool.
VALUE: tl.constexpr = tl.constexpr(0)
ALPHA: tl.constexpr = tl.constexpr(1)
TAU: tl.constexpr = tl.constexpr(2)
COUNT: tl.constexpr = tl.constexpr(3)  # n
THETA: tl.constexpr = tl.constexpr(4)  # the key of the largest unsaturated loss; keys are exact in float64
LOG_SCALE: tl.constexpr = tl.constexpr(5)  # log2(w/τ) of a loss θ
UNIT: tl.constexpr = tl.constexpr(6)  # τ, or NaN if a loss of the pool is not finite
WIDTH: tl.constexpr = tl.constexpr(7)  # of the last bracket; 1 if the search is exact
WRONG_VALUES: tl.constexpr = tl.constexpr(8)
WRONG_WEIGHTS: tl.constexpr = tl.constexpr(9)
COLUMNS: tl.constexpr = tl.constexpr(10)


@triton.jit
def read_loss(losses, mask, start, offset, inside, MASKED: tl.constexpr, REFUSE_NEGATIVE: tl.constexpr):
    """Return losses as float32: negative if void, and BAD_VALUE where a negative loss is refused."""
    loss = tl.load(losses + start + offset, mask=inside, other=VOID_LOSS).to(tl.float32)
    if REFUSE_NEGATIVE:
        loss = tl.where((loss < 0) & inside, BAD_VALUE, loss)
    if MASKED:
        loss = tl.where(tl.load(mask + start + offset, mask=inside, other=0) != 0, loss, VOID_LOSS)
    return loss


@triton.jit(do_not_specialize=["N", "P", "before_P", "chunks", "tiles", "q", "q_low", "m_bits"])
def count_pass(
    losses,
    mask,
    before,
    record,
    first_record,
    before_partials,
    partials,
    sums,
    N,
    P,
    before_P,
    chunks,
    tiles,
    q,
    q_low,
    m_bits,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    MASKED: tl.constexpr,
    REFUSE_NEGATIVE: tl.constexpr,
    SHARE: tl.constexpr,
    UNIFORM: tl.constexpr,
    BLOCK: tl.constexpr,
    P2: tl.constexpr,
):
    """Count the losses of a bracket in bins, and sum (ℓ/lo)^q below it.

    P programs share a pool. Each narrows the bracket of the pass before by itself, all to the same
    result, because one more launch would cost more.
    """
    pool, part = tl.program_id(0) // P, tl.program_id(0) % P
    record += pool.to(tl.int64) * (BINS + SLOTS)
    if FIRST:
        over = tl.zeros((), tl.int64)
        lo = over + ZERO
        hi = over + TOP
    else:
        row = pool.to(tl.int64) * (BINS + SLOTS)
        lo, hi, over = narrow(
            before + row,
            first_record + row,
            before_partials + pool.to(tl.int64) * before_P,
            before_P,
            q,
            q_low,
            m_bits,
            SHARE,
            UNIFORM,
            P2,
        )
    if part == 0:
        tl.store(record + BINS + LO, lo)
        tl.store(record + BINS + HI, hi)
        tl.store(record + BINS + OVER, over)

    shift = bin_shift(hi - lo).to(tl.uint32)
    lo, hi = lo.to(tl.uint32), hi.to(tl.uint32)
    begin = part.to(tl.int64) * chunks * (tiles * BLOCK)
    left = tl.minimum(N - begin, 0x7FFFFFFF).to(tl.int32)  # int32 from here on; negative if this program has no loss
    start = pool.to(tl.int64) * N + begin
    bins = tl.arange(0, BINS)
    counts = tl.zeros((BINS,), tl.int32)
    valid = tl.zeros((BLOCK,), tl.int32)
    flags = tl.zeros((BLOCK,), tl.int32)  # bit k stands for slot INFINITE_LOSSES + k
    below = tl.zeros((), tl.float64)
    higher = tl.zeros((BLOCK,), tl.float64)
    for chunk in range(chunks):
        chunk_below = tl.zeros((BLOCK,), tl.float32)  # few enough terms for float32
        for tile in range(tiles):
            offset = (chunk * tiles + tile) * BLOCK + tl.arange(0, BLOCK)
            loss = read_loss(losses, mask, start, offset, offset < left, MASKED, FIRST and REFUSE_NEGATIVE)
            key = to_key(loss)
            inside = (key > lo) & (key <= hi)
            digit = tl.where(inside, (key - lo - 1) >> shift, 0).to(tl.int32)
            # The histogram takes no mask before Triton 3.8: what is outside goes to bin 0 and is subtracted again.
            within = tl.sum(inside.to(tl.int32), 0)
            if within > 0:  # in the later passes few blocks hold a loss of the bracket
                counts += tl.histogram(digit, BINS) - tl.where(bins == 0, BLOCK - within, 0)
            if FIRST:
                valid += (key != VOID).to(tl.int32)
                flags |= tl.where(key == INFINITE, 1, 0) | tl.where(key == NOT_A_NUMBER, 2, 0)
                flags |= tl.where(loss == BAD_VALUE, 4, 0) | tl.where(loss == BAD_CLASS_WEIGHT, 8, 0)
            else:
                chunk_below += tl.where(key <= lo, power(key, lo, q, q_low), 0.0)
            if LAST:
                higher += tl.where(key > hi, loss, 0.0).to(tl.float64)
        below += tl.sum(chunk_below, 0).to(tl.float64)

    tl.atomic_add(record + bins, counts.to(tl.int64), mask=counts > 0, sem="relaxed")
    slot = pool.to(tl.int64) * P + part
    tl.store(partials + slot, below)
    if FIRST:
        tl.atomic_add(record + BINS + VALID, tl.sum(valid, 0).to(tl.int64), sem="relaxed")
        for k in tl.static_range(4):
            raised = tl.max((flags >> k) & 1, 0).to(tl.int64)
            tl.atomic_add(record + BINS + INFINITE_LOSSES + k, raised, mask=raised > 0, sem="relaxed")
    if LAST:
        tl.store(sums + slot, tl.sum(higher, 0))


@triton.jit(do_not_specialize=["P", "q", "q_low", "m_bits", "inverse_p_bits"])
def finish(
    record,
    first_record,
    partials,
    sums,
    table,
    P,
    q,
    q_low,
    m_bits,
    inverse_p_bits,
    SHARE: tl.constexpr,
    UNIFORM: tl.constexpr,
    P2: tl.constexpr,
):
    """Narrow one last time, and write a pool's row of the table."""
    pool = tl.program_id(0).to(tl.int64)
    record += pool * (BINS + SLOTS)
    first_record += pool * (BINS + SLOTS)
    partials += pool * P
    lo, hi, over, shift, edges, count, below = read_pass(record, partials, P, P2)
    theta, end, beyond = narrow(record, first_record, partials, P, q, q_low, m_bits, SHARE, UNIFORM, P2)
    n, m = pixels(first_record, m_bits, SHARE)

    # S(θ) relative to θ, the room there, and the sum of the saturated losses.
    unsaturated = edges <= theta
    terms = tl.where(unsaturated, count.to(tl.float32) * power(edges, theta, q, q_low), 0.0)
    total = tl.sum(terms.to(tl.float64), 0) + (below * power(lo, theta, q, q_low)).to(tl.float64)
    room = m - (over + tl.sum(tl.where(unsaturated, 0, count), 0)).to(tl.float64)
    part = tl.arange(0, P2)
    saturated = tl.sum(tl.load(sums + pool * P + part, mask=part < P, other=0.0), 0)
    saturated += tl.sum(tl.where(unsaturated | (count == 0), 0.0, count.to(tl.float64) * to_loss(edges)), 0)

    inverse_p = inverse_p_bits.to(tl.int64).to(tl.float64, bitcast=True)
    found = (theta > ZERO) & (total > 0)
    log_ratio = tl.where(found & (room > 0), tl.log2(tl.where(found & (room > 0), total / room, 1.0)), 0.0)
    alpha = tl.where(found, to_loss(theta) * tl.exp2(log_ratio * (1.0 - inverse_p)), 0.0)
    log_tau = (inverse_p - 1.0) * tl.log2(tl.maximum(n, 1.0)) - inverse_p * tl.log2(tl.maximum(m, 1.0))
    tau = tl.where(n > 0, tl.exp2(log_tau), 0.0)
    value = tau * (saturated + tl.where(found, room * alpha, 0.0))
    infinite, nan = tl.load(first_record + BINS + INFINITE_LOSSES), tl.load(first_record + BINS + NAN_LOSSES)
    broken = infinite + nan > 0
    value = tl.where(nan > 0, float("nan"), tl.where(infinite > 0, float("inf"), value))

    table += pool * COLUMNS
    tl.store(table + VALUE, value)
    tl.store(table + ALPHA, tl.where(broken, float("nan"), alpha))
    tl.store(table + TAU, tau)
    tl.store(table + COUNT, n)
    tl.store(table + THETA, theta.to(tl.float64))
    tl.store(table + LOG_SCALE, -log_ratio * inverse_p)
    tl.store(table + UNIT, tl.where(broken, float("nan"), tau))
    tl.store(table + WIDTH, (end - theta).to(tl.float64))
    tl.store(table + WRONG_VALUES, tl.load(first_record + BINS + BAD_VALUES).to(tl.float64))
    tl.store(table + WRONG_WEIGHTS, tl.load(first_record + BINS + BAD_WEIGHTS).to(tl.float64))


@triton.jit(do_not_specialize=["R", "ranks"])
def average(table, loss, factor, R, ranks, FROM_LOGITS: tl.constexpr, BLOCK: tl.constexpr):
    """Average the values of the pools that have a valid pixel, and refuse bad arguments.

    The factor is that of the weights in the gradient. With several ranks each holds part of one
    pool, so their gradients must be summed, but DDP averages them: hence the number of ranks.
    """
    total = tl.zeros((BLOCK,), tl.float64)
    filled = tl.zeros((BLOCK,), tl.int32)
    wrong_values = tl.zeros((BLOCK,), tl.int32)
    wrong_weights = tl.zeros((BLOCK,), tl.int32)
    for begin in range(0, R, BLOCK):
        pool = begin + tl.arange(0, BLOCK)
        row = table + pool.to(tl.int64) * COLUMNS
        has_pixels = tl.load(row + COUNT, mask=pool < R, other=0.0) > 0
        total += tl.where(has_pixels, tl.load(row + VALUE, mask=pool < R, other=0.0), 0.0)
        filled += has_pixels.to(tl.int32)
        wrong_values += (tl.load(row + WRONG_VALUES, mask=pool < R, other=0.0) > 0).to(tl.int32)
        wrong_weights += (tl.load(row + WRONG_WEIGHTS, mask=pool < R, other=0.0) > 0).to(tl.int32)
    pools = tl.maximum(tl.sum(filled, 0), 1).to(tl.float64)
    tl.store(loss, (tl.sum(total, 0) / pools).to(tl.float32))
    tl.store(factor, ranks / pools)
    # Asynchronous, as torch's own assertions on labels: the host does not wait.
    if FROM_LOGITS:
        tl.device_assert(
            tl.sum(wrong_values, 0) == 0, "losspool: target has labels other than classes and ignore_index"
        )
        tl.device_assert(tl.sum(wrong_weights, 0) == 0, "losspool: class weights must not be negative or infinite")
    else:
        tl.device_assert(tl.sum(wrong_values, 0) == 0, "losspool: losses must not be negative")


@triton.jit
def weight(key, theta, log_scale, exponent):
    """Return w/τ of a loss: 1 above θ, (ℓ/α)^(q-1) up to θ, 0 for zero losses and void pixels."""
    below = tl.exp2(tl.minimum(exponent * log2_ratio(key, theta) + log_scale, 0.0))
    return tl.where(key > theta, 1.0, tl.where(key > ZERO, below, 0.0))


@triton.jit
def pool_factor(table, factor, grad):
    """Return θ, log2(w/τ) there, and the factor of a pool's weights in the gradient."""
    theta = tl.load(table + THETA).to(tl.int64).to(tl.uint32)
    log_scale = tl.load(table + LOG_SCALE).to(tl.float32)
    unit = tl.load(table + UNIT) * tl.load(factor) * tl.load(grad).to(tl.float64)
    return theta, log_scale, unit.to(tl.float32)


@triton.jit(do_not_specialize=["N", "P", "exponent"])
def weigh(
    losses,
    mask,
    table,
    factor,
    grad,
    out,
    N,
    P,
    exponent,
    MASKED: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write every pixel's weight, times the incoming gradient if GRADIENT."""
    pool, part = (tl.program_id(0) // P).to(tl.int64), (tl.program_id(0) % P).to(tl.int64)
    offset = part * BLOCK + tl.arange(0, BLOCK)
    inside = offset < N
    key = to_key(read_loss(losses, mask, pool * N, offset, inside, MASKED, False))
    table += pool * COLUMNS
    if GRADIENT:
        theta, log_scale, unit = pool_factor(table, factor, grad)
    else:
        theta, log_scale = tl.load(table + THETA).to(tl.int64).to(tl.uint32), tl.load(table + LOG_SCALE).to(tl.float32)
        unit = tl.load(table + UNIT).to(tl.float32)
    result = tl.where(key == VOID, 0.0, unit * weight(key, theta, log_scale, exponent))
    tl.store(out + pool * N + offset, result.to(out.dtype.element_ty), mask=inside)
