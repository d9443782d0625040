"""Cross-entropy of coarse logits, interpolated bilinearly inside the kernels.

Positions are exact fractions: a fine row y lies ``numerator(y) / denominator`` coarse rows from the
first one, so the fine rows between two coarse rows are found by integer division.

Coarse logits of -inf become a very low finite value first, as in ``ops/logits.py``: a class is *ruled
out* at pixels whose interpolation involves one, unless every class is. The softmax needs no
special case for it, because the exponential of a ruled-out class is 0 beside any other class.
"""

import triton
import triton.language as tl

from losspool.kernels.cross_entropy import (
    class_share,
    gradient_shares,
    is_better,
    mark,
    pixel_loss,
    read_label,
    softmax_step,
    sum_of_weights,
)
from losspool.kernels.keys import VOID, VOID_LOSS, natural_log, to_key
from losspool.kernels.pooling import COLUMNS, pool_factor, weight

LOWEST: tl.constexpr = tl.constexpr(-3.4028234663852886e38 / 4)  # stands for -inf
RULED_OUT: tl.constexpr = tl.constexpr(-3.4028234663852886e38 * 2.0**-40)  # lower than any other logit


@triton.jit
def denominator(fine, ALIGN: tl.constexpr, WIDE: tl.constexpr):
    size = tl.cast(fine, tl.int64 if WIDE else tl.int32)
    return tl.maximum(size - 1, 1) if ALIGN else 2 * size


@triton.jit
def numerator(index, coarse, fine, ALIGN: tl.constexpr, WIDE: tl.constexpr):
    index = tl.cast(index, tl.int64 if WIDE else tl.int32)
    return index * (coarse - 1) if ALIGN else tl.maximum((2 * index + 1) * coarse - fine, 0)


@triton.jit
def position(index, coarse, fine, ALIGN: tl.constexpr, WIDE: tl.constexpr):
    """Return the coarse index before a fine one, and how far it lies towards the next."""
    above, below = numerator(index, coarse, fine, ALIGN, WIDE), denominator(fine, ALIGN, WIDE)
    cell = above // below
    return cell.to(tl.int32), (above - cell * below).to(tl.float32) / below.to(tl.float32)


@triton.jit
def first_after(cell, coarse, fine, ALIGN: tl.constexpr, WIDE: tl.constexpr):
    """Return the first fine index at or after a coarse one; ``fine`` beyond the last coarse index."""
    cell = tl.cast(cell, tl.int64 if WIDE else tl.int32)
    below = denominator(fine, ALIGN, WIDE)
    if ALIGN:
        index = (cell * below + coarse - 2) // tl.maximum(coarse - 1, 1)
    else:
        index = (cell * below + fine + coarse - 1) // (2 * coarse)
    return tl.where(cell <= 0, 0, tl.where(cell >= coarse, fine, index)).to(tl.int32)


@triton.jit
def read_corner(pointers, mask):
    x = tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
    return tl.where(x < LOWEST, LOWEST, x)  # tl.maximum would swallow a NaN


@triton.jit(do_not_specialize=["H", "W", "h", "w", "P", "ignore"])
def upsampled_forward(
    logits,
    target,
    class_weight,
    losses,
    peaks,
    log_totals,
    prediction,
    H,
    W,
    h,
    w,
    P,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    ignore,
    C: tl.constexpr,
    C2: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SMOOTHING: tl.constexpr,
    PREDICT: tl.constexpr,
    ALIGN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the losses of a block of pixels of one row."""
    line = (tl.program_id(0) // P).to(tl.int64)
    image, y = line // H, line % H
    x = (tl.program_id(0) % P) * BLOCK + tl.arange(0, BLOCK)
    inside = x < W
    pixel = line * W + x
    label, void, bad = read_label(target, pixel, inside, ignore, C)
    y0, down = position(y, h, H, ALIGN, WIDE)
    x0, right = position(x, w, W, ALIGN, WIDE)
    up, left = 1.0 - down, 1.0 - right
    row0 = logits + image * stride_b + y0.to(tl.int64) * stride_y
    row1 = logits + image * stride_b + tl.minimum(y0 + 1, h - 1).to(tl.int64) * stride_y
    at0 = x0.to(tl.int64) * stride_x
    at1 = tl.minimum(x0 + 1, w - 1).to(tl.int64) * stride_x

    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    picked = tl.zeros((BLOCK,), tl.float32)
    dotted = tl.zeros((BLOCK,), tl.float32)
    lowest = tl.zeros((BLOCK,), tl.float32)
    best = tl.zeros((BLOCK,), tl.int32)
    reference = read_corner(row0 + at0, inside)
    for c in range(C):
        top = left * read_corner(row0 + at0, inside) + right * read_corner(row0 + at1, inside)
        bottom = left * read_corner(row1 + at0, inside) + right * read_corner(row1 + at1, inside)
        row0 += stride_c
        row1 += stride_c
        z = up * top + down * bottom
        picked = tl.where(label == c, z, picked)
        if SMOOTHING > 0:
            dotted += class_share(class_weight, c, WEIGHTED) * (z - reference)
            lowest = tl.minimum(lowest, z)
        if PREDICT:
            best = tl.where(is_better(z, peak), c, best)
        peak, total = softmax_step(z, peak, total)
    some = peak >= RULED_OUT  # a class that is not ruled out
    picked = tl.where(some & (picked < RULED_OUT), float("-inf"), picked)
    if SMOOTHING > 0:
        dotted = tl.where(some & (lowest < RULED_OUT), float("-inf"), dotted)
    log_total = natural_log(total)
    weight_sum = sum_of_weights(class_weight, WEIGHTED, C, C2)
    loss = pixel_loss(
        peak, log_total, picked, dotted, reference, weight_sum, class_weight, label, WEIGHTED, SMOOTHING, C
    )
    tl.store(losses + pixel, mark(loss, void, bad, class_weight, WEIGHTED, C, C2), mask=inside)
    tl.store(peaks + pixel, peak, mask=inside)
    tl.store(log_totals + pixel, log_total, mask=inside)
    if PREDICT:
        tl.store(prediction + pixel, best.to(tl.int64), mask=inside)


@triton.jit(do_not_specialize=["H", "W", "h", "w", "P", "size", "per_image", "ignore", "exponent"])
def upsampled_backward(
    logits,
    target,
    class_weight,
    losses,
    peaks,
    log_totals,
    table,
    factor,
    grad,
    corners,
    H,
    W,
    h,
    w,
    P,
    size,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    per_image,
    ignore,
    exponent,
    C: tl.constexpr,
    C2: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ALIGN: tl.constexpr,
    WIDE: tl.constexpr,
    CHUNK: tl.constexpr,
    GAPS: tl.constexpr,
    STEP: tl.constexpr,
):
    """Write what the pixels of a gap between coarse rows and columns give to its four corners.

    A *gap* (i, j) lies between the coarse rows i, i+1 and columns j, j+1. Every pixel belongs to one
    gap, so no two programs write to the same place. ``corners`` is (4, B, C, h, w): the shares of
    the logits [i, j], [i, j+1], [i+1, j] and [i+1, j+1]. Programs of the same pixels are neighbours,
    so that all but one find them in the cache.
    """
    chunks: tl.constexpr = (C + CHUNK - 1) // CHUNK
    c = (tl.program_id(0) % chunks) * CHUNK + tl.arange(0, CHUNK)
    place = tl.program_id(0) // chunks
    j = (place % P) * GAPS + tl.arange(0, GAPS)
    i = (place // P) % h
    image = (place // P // h).to(tl.int64)
    real = (c < C)[:, None] & (j < w)[None, :]
    i1, j1 = tl.minimum(i + 1, h - 1), tl.minimum(j + 1, w - 1)
    plane = logits + image * stride_b + c.to(tl.int64)[:, None] * stride_c
    at0, at1 = j.to(tl.int64)[None, :] * stride_x, j1.to(tl.int64)[None, :] * stride_x
    row0, row1 = i.to(tl.int64) * stride_y, i1.to(tl.int64) * stride_y
    a = read_corner(plane + row0 + at0, real)[:, :, None]
    b = read_corner(plane + row0 + at1, real)[:, :, None]
    d = read_corner(plane + row1 + at0, real)[:, :, None]
    e = read_corner(plane + row1 + at1, real)[:, :, None]
    theta, log_scale, unit = pool_factor(table + image * per_image * COLUMNS, factor, grad)
    weight_sum = sum_of_weights(class_weight, WEIGHTED, C, C2)
    if SMOOTHING > 0:
        class_shares = tl.load(class_weight + c, mask=c < C, other=0.0).to(tl.float32) if WEIGHTED else c * 0.0 + 1.0

    sum_a = tl.zeros((CHUNK, GAPS), tl.float32)
    sum_b = tl.zeros((CHUNK, GAPS), tl.float32)
    sum_d = tl.zeros((CHUNK, GAPS), tl.float32)
    sum_e = tl.zeros((CHUNK, GAPS), tl.float32)
    y_begin, y_end = first_after(i, h, H, ALIGN, WIDE), first_after(i + 1, h, H, ALIGN, WIDE)
    x_begin, x_end = first_after(j, w, W, ALIGN, WIDE), first_after(j + 1, w, W, ALIGN, WIDE)
    longest = tl.max(x_end - x_begin, 0)
    for line in range(y_end - y_begin):
        y = y_begin + line
        row, down = position(y, h, H, ALIGN, WIDE)
        for step in range(0, longest, STEP):
            x = x_begin[:, None] + step + tl.arange(0, STEP)[None, :]  # (GAPS, STEP)
            mine = x < x_end[:, None]
            column, right = position(x, w, W, ALIGN, WIDE)
            pixel = (image * H + y) * W + x
            label, void, bad = read_label(target, pixel, mine, ignore, C)
            key = to_key(tl.load(losses + pixel, mask=mine, other=VOID_LOSS))
            shift = tl.load(peaks + pixel, mask=mine, other=0.0)[None, :, :]
            log_total = tl.load(log_totals + pixel, mask=mine, other=0.0)[None, :, :]
            pixel_factor = unit * weight(key, theta, log_scale, exponent)
            hard, soft, total = gradient_shares(pixel_factor, label, class_weight, weight_sum, WEIGHTED, SMOOTHING, C)
            right = right[None, :, :]
            left = 1.0 - right
            z = (1.0 - down) * (left * a + right * b) + down * (left * d + right * e)
            g = tl.exp((z - shift) - log_total) * total[None, :, :]
            g -= tl.where(c[:, None, None] == label[None, :, :], hard[None, :, :], 0.0)
            if SMOOTHING > 0:
                g -= soft[None, :, :] * class_shares[:, None, None]
            g = tl.where((key == VOID)[None, :, :], 0.0, g)  # whatever the logits of a void pixel are
            whole, to_right = tl.sum(g, 2), tl.sum(g * right, 2)
            sum_a += (1.0 - down) * (whole - to_right)
            sum_b += (1.0 - down) * to_right
            sum_d += down * (whole - to_right)
            sum_e += down * to_right
    at = corners + ((image * C + c.to(tl.int64)[:, None]) * h + i) * w + j[None, :]
    size = size.to(tl.int64)
    tl.store(at, sum_a, mask=real)
    tl.store(at + size, sum_b, mask=real)
    tl.store(at + 2 * size, sum_d, mask=real)
    tl.store(at + 3 * size, sum_e, mask=real)


@triton.jit(do_not_specialize=["C", "h", "w", "size"])
def merge_corners(corners, gradient, C, h, w, size, stride_b, stride_c, stride_y, stride_x, BLOCK: tl.constexpr):
    """Sum for each coarse logit what the gaps around it gave to it, in a fixed order."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    j, i = index % w, (index // w) % h
    plane = index // w // h
    size = size.to(tl.int64)
    total = tl.load(corners + index, mask=inside, other=0.0)
    total += tl.load(corners + size + index - 1, mask=inside & (j > 0), other=0.0)
    total += tl.load(corners + size + index, mask=inside & (j == w - 1), other=0.0)  # its right corner is itself
    for last in tl.static_range(2):  # the row above, and for the last row its own lower corners
        mask = inside & ((i == h - 1) if last else (i > 0))
        row = index if last else index - w
        total += tl.load(corners + 2 * size + row, mask=mask, other=0.0)
        total += tl.load(corners + 3 * size + row - 1, mask=mask & (j > 0), other=0.0)
        total += tl.load(corners + 3 * size + row, mask=mask & (j == w - 1), other=0.0)
    place = plane // C * stride_b + plane % C * stride_c + i * stride_y + j * stride_x
    tl.store(gradient + place, total.to(gradient.dtype.element_ty), mask=inside)
