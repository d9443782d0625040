"""Cross-entropy of full-size logits: losses of pixels, and the gradient of the pooled loss.

The functions that work on one class or one pixel serve the upsampled kernels as well.
"""

import triton
import triton.language as tl

from losspool.kernels.keys import BAD_CLASS_WEIGHT, BAD_VALUE, VOID, VOID_LOSS, natural_log, to_key
from losspool.kernels.pooling import COLUMNS, pool_factor, weight


@triton.jit
def read_label(target, index, inside, ignore, C: tl.constexpr):
    """Return the class of each pixel (0 if there is none), whether it is void, and whether its label is bad."""
    label = tl.load(target + index, mask=inside, other=0).to(tl.int64)
    void = label == ignore
    bad = ((label < 0) | (label >= C)) & (label != ignore)
    return tl.where(void | bad, 0, label).to(tl.int32), void, bad


@triton.jit
def softmax_step(x, peak, total):
    """Add a class to the running maximum and the sum of exponentials relative to it, with one exponential."""
    d = x - peak
    e = tl.exp(-tl.abs(d))
    total = tl.where(x == float("-inf"), total, tl.where(d > 0, total * e + 1.0, total + e))
    return tl.where((x > peak) | (x != x), x, peak), total  # tl.maximum would swallow a NaN


@triton.jit
def is_better(x, peak):
    """Whether a class replaces the prediction; the first NaN wins, as in torch.argmax."""
    return (x > peak) | ((x != x) & (peak == peak))


@triton.jit
def class_share(class_weight, c, WEIGHTED: tl.constexpr):
    return tl.load(class_weight + c).to(tl.float32) if WEIGHTED else 1.0


@triton.jit
def pixel_loss(
    peak,
    log_total,
    picked,
    dotted,
    reference,
    weight_sum,
    class_weight,
    label,
    WEIGHTED: tl.constexpr,
    SMOOTHING: tl.constexpr,
    C: tl.constexpr,
):
    """Return the loss that ``F.cross_entropy`` gives, never negative: negative losses are marks.

    ``dotted`` is Σ c·(x - reference) over the classes, with class weights c and logits x.
    """
    loss = log_total + (peak - picked)
    if WEIGHTED:
        loss = loss * tl.load(class_weight + label).to(tl.float32)
    if SMOOTHING > 0:
        soft = weight_sum * (log_total + (peak - reference)) - dotted
        loss = (1.0 - SMOOTHING) * loss + (SMOOTHING / C) * soft
    return tl.where(loss < 0, 0.0, loss)  # NaN stays


@triton.jit
def mark(loss, void, bad, class_weight, WEIGHTED: tl.constexpr, C: tl.constexpr, C2: tl.constexpr):
    """Replace the losses of void pixels and of bad arguments. Bad class weights mark all pixels, void ones too."""
    loss = tl.where(void, VOID_LOSS, tl.where(bad, BAD_VALUE, loss))
    if WEIGHTED:
        c = tl.arange(0, C2)
        weights = tl.load(class_weight + c, mask=c < C, other=0.0).to(tl.float32)
        wrong = tl.max(tl.where((weights >= 0) & (weights < float("inf")), 0, 1), 0)
        loss = tl.where(wrong > 0, BAD_CLASS_WEIGHT, loss)
    return loss


@triton.jit
def sum_of_weights(class_weight, WEIGHTED: tl.constexpr, C: tl.constexpr, C2: tl.constexpr):
    c = tl.arange(0, C2)
    return tl.sum(tl.load(class_weight + c, mask=c < C, other=0.0).to(tl.float32), 0) if WEIGHTED else C * 1.0


@triton.jit
def gradient_shares(
    factor, label, class_weight, weight_sum, WEIGHTED: tl.constexpr, SMOOTHING: tl.constexpr, C: tl.constexpr
):
    """Return hard, soft and total: the gradient is total·softmax - hard·onehot - soft·(class weight)."""
    hard = factor * (1.0 - SMOOTHING)
    if WEIGHTED:
        hard = hard * tl.load(class_weight + label).to(tl.float32)
    soft = factor * (SMOOTHING / C)
    return hard, soft, (hard + soft * weight_sum) if SMOOTHING > 0 else hard


@triton.jit(do_not_specialize=["N", "P", "ignore"])
def cross_entropy_forward(
    logits,
    target,
    class_weight,
    losses,
    peaks,
    log_totals,
    prediction,
    N,
    P,
    stride_b,
    stride_c,
    stride_n,
    ignore,
    C: tl.constexpr,
    C2: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SMOOTHING: tl.constexpr,
    PREDICT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the losses of a block of pixels. Every logit is read once, one class after the other."""
    image, part = (tl.program_id(0) // P).to(tl.int64), (tl.program_id(0) % P).to(tl.int64)
    offset = part * BLOCK + tl.arange(0, BLOCK)
    inside = offset < N
    pixel = image * N + offset
    label, void, bad = read_label(target, pixel, inside, ignore, C)
    row = logits + image * stride_b  # a pointer per class: c·stride_c may exceed an int32
    place = offset * stride_n
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    picked = tl.zeros((BLOCK,), tl.float32)
    dotted = tl.zeros((BLOCK,), tl.float32)
    best = tl.zeros((BLOCK,), tl.int32)
    # Sums of logits are relative to one of them, so that a common shift of all logits does not cost digits.
    reference = tl.load(row + place, mask=inside, other=0.0).to(tl.float32)
    reference = tl.where(reference > float("-inf"), reference, 0.0)
    for c in range(C):
        x = tl.load(row + place, mask=inside, other=0.0).to(tl.float32)
        row += stride_c
        picked = tl.where(label == c, x, picked)
        if SMOOTHING > 0:
            dotted += class_share(class_weight, c, WEIGHTED) * (x - reference)
        if PREDICT:
            best = tl.where(is_better(x, peak), c, best)
        peak, total = softmax_step(x, peak, total)
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


@triton.jit(do_not_specialize=["N", "P", "per_image", "ignore", "exponent"])
def cross_entropy_backward(
    logits,
    target,
    class_weight,
    losses,
    peaks,
    log_totals,
    table,
    factor,
    grad,
    gradient,
    N,
    P,
    stride_b,
    stride_c,
    stride_n,
    grad_stride_b,
    grad_stride_c,
    grad_stride_n,
    per_image,
    ignore,
    exponent,
    C: tl.constexpr,
    C2: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SMOOTHING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient of a block of pixels. Each pixel's weight is computed from its loss on the way."""
    image, part = (tl.program_id(0) // P).to(tl.int64), (tl.program_id(0) % P).to(tl.int64)
    offset = part * BLOCK + tl.arange(0, BLOCK)
    inside = offset < N
    pixel = image * N + offset
    label, _, _ = read_label(target, pixel, inside, ignore, C)
    key = to_key(tl.load(losses + pixel, mask=inside, other=VOID_LOSS))
    peak = tl.load(peaks + pixel, mask=inside, other=0.0)
    log_total = tl.load(log_totals + pixel, mask=inside, other=0.0)
    theta, log_scale, unit = pool_factor(table + image * per_image * COLUMNS, factor, grad)
    pixel_factor = unit * weight(key, theta, log_scale, exponent)
    weight_sum = sum_of_weights(class_weight, WEIGHTED, C, C2)
    hard, soft, total = gradient_shares(pixel_factor, label, class_weight, weight_sum, WEIGHTED, SMOOTHING, C)
    row, place = logits + image * stride_b, offset * stride_n
    out, out_place = gradient + image * grad_stride_b, offset * grad_stride_n
    for c in range(C):
        x = tl.load(row + place, mask=inside, other=0.0).to(tl.float32)
        # Relative to the maximum: the log-sum-exp itself would lose digits where logits share a large shift.
        g = tl.exp((x - peak) - log_total) * total - tl.where(label == c, hard, 0.0)
        if SMOOTHING > 0:
            g -= soft * class_share(class_weight, c, WEIGHTED)
        g = tl.where(key == VOID, 0.0, g)  # whatever the logits of a void pixel are
        tl.store(out + out_place, g.to(gradient.dtype.element_ty), mask=inside)
        row += stride_c
        out += grad_stride_c
