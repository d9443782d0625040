"""The public functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

from losspool._calls import Pixel, Pooling, pool_binary, pool_logits, pool_losses, weigh_losses
from losspool._validation import Reduction, Scope, refuse_deprecated, unscriptable
from losspool.stats import PoolingStats


@unscriptable
@refuse_deprecated
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | Sequence[float] | None = None,
    *,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    p: float = 1.3,
    m: float | str = 0.25,
    scope: Scope = "image",
    group: dist.ProcessGroup | None = None,
    trim: float | str = 0.0,
    stats: PoolingStats | None = None,
) -> Tensor:
    r"""Cross-entropy, pooled over pixels with the weights that maximise it.

    .. math::
        L = \max_w \sum_u w(u)\,\ell(u) \quad\text{with}\quad
        \|w\|_p \le n^{-1/q},\; \|w\|_\infty \le \tau = n^{-1/q} m^{-1/p},\; q = p/(p-1)

    where :math:`\ell(u)` is the cross-entropy of pixel u and n is the number of valid pixels
    (Eq. 4 and 5 of Rota Bulò et al., "Loss Max-Pooling for Semantic Image Segmentation", 2017).

    Convention:
        ``input`` holds logits. A pixel's loss equals ``F.cross_entropy(..., reduction="none")``,
        including class weights and smoothing. The result is not divided by the sum of class
        weights. Pixels labelled ``ignore_index`` are void: they do not count, and their gradient
        is zero whatever their logits. Without any valid pixel the loss is 0, attached to the
        graph, with zero gradient. Half-precision logits give a float32 loss. A non-finite pixel
        loss gives a non-finite result, unless it is trimmed. The gradient is w*·∂ℓ; second
        derivatives are not supported.

    Args:
        input: logits of shape (B, C, ...), any number of trailing dimensions.
        target: class indices of shape (B, ...) or (B, 1, ...): integers of any dtype, bools, or
            floats that hold whole numbers. Or class probabilities of the shape of ``input``, any
            floating-point dtype.
        weight: non-negative class weights of shape (C,), a tensor or a list.
        ignore_index: label of void pixels; None if no pixel is void. As in torch, it must not be
            set to a class together with class probabilities.
        label_smoothing: smoothing in [0, 1], as in ``F.cross_entropy``.
        reduction: ``"mean"`` averages over the pools that have a valid pixel, ``"pool"`` returns
            one value per pool (0 without a valid pixel).
        p: norm exponent, from 1 (only the hardest pixels count) to ``math.inf`` (all pixels
            count equally).
        m: minimum number of pixels that share the weight. A float in (0, 1] or a string like
            ``"25%"`` is a fraction of the valid pixels; an int >= 1 or a string like ``"1000px"``
            is a number of pixels. Clamped to [1, n].
        scope: ``"image"`` pools each image separately. ``"batch"`` pools the whole batch at once.
            ``"global"`` pools the batches of all ranks in ``group`` at once, so that k DDP
            processes take the same step as one process with the full batch; without a process
            group it equals ``"batch"``.
        group: process group for ``scope="global"`` (default: the default group).
        trim: share of each pool's largest losses to leave out, in [0, 1) or as ``"5%"``: a guard
            against label noise. They count as void. With k = ⌊trim·n⌋, the losses above the (k+1)-th largest are
            trimmed, so that equal losses stay together; m and n then count the rest.
        stats: filled in with α, τ, counts, weights and the arg-max prediction.

    Returns:
        A scalar, or a tensor of shape (pools,) with ``reduction="pool"``; float64 for float64
        logits, else float32.

    Example:
        >>> import torch, losspool
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> labels = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> round(losspool.cross_entropy(logits, labels, p=1.3, m=0.25).item(), 4)
        2.9444
    """
    pooling = Pooling(p, m, scope, group, reduction, trim, stats)
    return pool_logits(input, target, Pixel(weight, ignore_index, label_smoothing), pooling)


@unscriptable
@refuse_deprecated
def upsampled_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | Sequence[float] | None = None,
    *,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    p: float = 1.3,
    m: float | str = 0.25,
    scope: Scope = "image",
    group: dist.ProcessGroup | None = None,
    trim: float | str = 0.0,
    stats: PoolingStats | None = None,
    align_corners: bool = False,
) -> Tensor:
    r"""Pooled cross-entropy of coarse logits, upsampled bilinearly to the size of the labels.

    .. math:: L = \text{cross\_entropy}(\text{interpolate}(\text{input}, (H, W)), \text{target})

    Convention:
        Value and gradient equal those of ``F.interpolate(input, target.shape[1:],
        mode="bilinear", align_corners=align_corners)`` followed by :func:`cross_entropy`, up to
        rounding. Full-size logits are never stored: only one strip of rows exists at a time.
        A first pass stores one loss per pixel. After the weights are solved, a second pass
        recomputes the logits and accumulates the gradient. (Class probabilities have the size of
        full-size logits themselves; with them, these are stored.)

    Args:
        input: logits of shape (B, C, h, w).
        target: class indices of shape (B, H, W) or (B, 1, H, W), or class probabilities of shape
            (B, C, H, W), with H >= h and W >= w.
        align_corners: as in ``F.interpolate``.
        weight, ignore_index, label_smoothing, reduction, p, m, scope, group, trim, stats: see
            :func:`cross_entropy`. The prediction in ``stats`` has the shape (B, H, W).

    Returns:
        A scalar, or one value per pool; float64 for float64 logits, else float32.

    Example:
        >>> import torch, losspool
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> labels = torch.zeros(2, 64, 64, dtype=torch.long)
        >>> round(losspool.upsampled_cross_entropy(logits, labels).item(), 4)
        2.9444
    """
    pooling = Pooling(p, m, scope, group, reduction, trim, stats)
    pixel = Pixel(weight, ignore_index, label_smoothing)
    return pool_logits(input, target, pixel, pooling, coarse=True, align_corners=align_corners)


@unscriptable
@refuse_deprecated
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | Sequence[float] | None = None,
    *,
    pos_weight: Tensor | Sequence[float] | float | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
    p: float = 1.3,
    m: float | str = 0.25,
    scope: Scope = "image",
    group: dist.ProcessGroup | None = None,
    trim: float | str = 0.0,
    stats: PoolingStats | None = None,
) -> Tensor:
    r"""Binary cross-entropy, pooled over pixels and labels with the weights that maximise it.

    .. math:: \ell = -[c\,y \log \sigma(x) + (1 - y) \log(1 - \sigma(x))]

    with logit x, target y and ``pos_weight`` c. One logit per pixel is a binary problem, several
    are several labels, which do not exclude each other.

    Convention:
        A loss equals ``F.binary_cross_entropy_with_logits(..., reduction="none")``. An image's
        pool holds the losses of all its pixels and labels. Masked logits and targets may hold any
        value. Otherwise as :func:`cross_entropy`.

    Args:
        input: logits of shape (B, ...). Shape (B,) requires ``scope="batch"`` or ``"global"``.
        target: values in [0, 1] of the shape of ``input``, of any dtype. Where that is (B, 1, ...),
            the shape (B, ...) is also accepted.
        weight: non-negative factors of the losses, broadcastable to ``input``.
        pos_weight: non-negative factors of the positive part, broadcastable to ``input``: for
            labels of shape (B, C, H, W) a tensor of shape (C, 1, 1).
        mask: bool tensor, broadcastable to ``input``: True where a loss counts (default: all).
        reduction, p, m, scope, group, trim, stats: see :func:`cross_entropy`. ``stats`` gets no
            prediction.

    Returns:
        A scalar, or one value per pool; float64 for float64 logits, else float32.

    Example:
        >>> import torch, losspool
        >>> logits, labels = torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8)
        >>> round(losspool.binary_cross_entropy_with_logits(logits, labels).item(), 4)
        0.6931
    """
    pooling = Pooling(p, m, scope, group, reduction, trim, stats)
    return pool_binary(input, target, weight, pos_weight, mask, pooling)


@unscriptable
def max_pool(
    losses: Tensor,
    *,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
    p: float = 1.3,
    m: float | str = 0.25,
    scope: Scope = "image",
    group: dist.ProcessGroup | None = None,
    trim: float | str = 0.0,
    stats: PoolingStats | None = None,
) -> Tensor:
    r"""Pool any per-pixel loss with the weights that maximise it.

    .. math::
        L = \max_w \sum_u w(u)\,\ell(u) \quad\text{with}\quad
        \|w\|_p \le n^{-1/q},\; \|w\|_\infty \le \tau = n^{-1/q} m^{-1/p},\; q = p/(p-1)

    Convention:
        Losses must be non-negative. ``mask`` is True where a pixel counts; losses elsewhere may
        hold any value. Half-precision losses give a float32 result. Otherwise as
        :func:`cross_entropy`.

    Args:
        losses: losses of shape (B, ...). Shape (B,) requires ``scope="batch"`` or ``"global"``.
        mask: bool tensor, broadcastable to ``losses`` (default: all pixels count).
        reduction, p, m, scope, group, trim, stats: see :func:`cross_entropy`.

    Returns:
        A scalar, or one value per pool; float64 for float64 losses, else float32.

    Example:
        >>> import torch, losspool
        >>> losspool.max_pool(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), p=1, m=2).item()
        3.0
    """
    return pool_losses(losses, mask, Pooling(p, m, scope, group, reduction, trim, stats))


@unscriptable
def pooling_weights(
    losses: Tensor,
    *,
    mask: Tensor | None = None,
    p: float = 1.3,
    m: float | str = 0.25,
    scope: Scope = "image",
    group: dist.ProcessGroup | None = None,
    trim: float | str = 0.0,
) -> Tensor:
    r"""Return the optimal weight w* of every pixel, detached, in the shape of ``losses``.

    .. math:: w^*(u) = \tau \min(1, (\ell(u)/\alpha^*)^{q-1})

    Convention:
        Weights are per pool: they do not include the average over images that
        ``scope="image"`` takes. A zero loss gets weight 0, except at p = ∞ or m = n, where
        every valid pixel gets 1/n. At p = 1 the losses equal to the ⌈m⌉-th largest split the
        weight that the larger losses leave. Masked and trimmed pixels get 0.

    Args:
        losses, mask, p, m, scope, group, trim: see :func:`max_pool`.

    Returns:
        Weights in the shape of ``losses``; float64 for float64 losses, else float32.

    Example:
        >>> import torch, losspool
        >>> losspool.pooling_weights(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), p=1, m=2).tolist()
        [[0.5, 0.0, 0.5, 0.0]]
    """
    return weigh_losses(losses, mask, Pooling(p, m, scope, group, "mean", trim, None))
