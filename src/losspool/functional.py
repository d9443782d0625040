"""The public functions: validate the arguments once, then call an autograd function."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from losspool import _validation as check
from losspool import kernels
from losspool._distributed import gatherer, resolve_group, shared_errors
from losspool.ops import Enlargement, PixelLoss, Setting, pooled_cross_entropy, pooled_losses, working_dtype
from losspool.solver import host
from losspool.stats import PoolingStats


def cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    p: float = 1.3,
    m: float = 0.25,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    scope: str = "image",
    group: dist.ProcessGroup | None = None,
    stats: PoolingStats | None = None,
) -> Tensor:
    r"""Cross-entropy, pooled over pixels with the weights that maximise it.

    .. math::
        L = \max_w \sum_u w(u)\,\ell(u) \quad\text{with}\quad
        \|w\|_p \le n^{-1/q},\; \|w\|_\infty \le \tau = n^{-1/q} m^{-1/p},\; q = p/(p-1)

    where :math:`\ell(u)` is the cross-entropy of pixel u and n is the number of valid pixels
    (Eq. 4 and 5 of Rota Bulò et al., "Loss Max-Pooling for Semantic Image Segmentation", 2017).

    Convention:
        ``input`` holds logits and ``target`` holds class indices. A pixel's loss equals
        ``F.cross_entropy(..., reduction="none")``, including class weights and smoothing. The
        result is not divided by the sum of class weights. Pixels labelled ``ignore_index`` are
        void: they do not count, and their gradient is zero whatever their logits. Without any
        valid pixel the loss is 0, attached to the graph, with zero gradient. Half-precision
        logits give a float32 loss. A non-finite pixel loss gives a non-finite result.
        The gradient is w*·∂ℓ; second derivatives are not supported.

    Args:
        input: logits of shape (B, C, ...), any number of trailing dimensions.
        target: class indices of shape (B, ...), any integer dtype.
        p: norm exponent, from 1 (only the hardest pixels count) to ``math.inf`` (all pixels
            count equally).
        m: minimum number of pixels that share the weight. A float in (0, 1] is a fraction of
            the valid pixels; an int >= 1 is a number of pixels. Clamped to [1, n].
        weight: non-negative class weights of shape (C,).
        ignore_index: label of void pixels.
        label_smoothing: smoothing in [0, 1], as in ``F.cross_entropy``.
        scope: ``"image"`` pools each image separately and averages over the images that have a
            valid pixel. ``"batch"`` pools the whole batch at once. ``"global"`` pools the
            batches of all ranks in ``group`` at once, so that k DDP processes take the same
            step as one process with the full batch; without a process group it equals
            ``"batch"``.
        group: process group for ``scope="global"`` (default: the default group).
        stats: filled in with α, τ, counts, weights and the arg-max prediction.

    Returns:
        A scalar: float64 for float64 logits, else float32.

    Example:
        >>> import torch, losspool
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> labels = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> round(losspool.cross_entropy(logits, labels, p=1.3, m=0.25).item(), 4)
        2.9444
    """
    group = resolve_group(scope, group)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(input), fingerprint):
        check.check_logits(input, target)
        check.check_target_shape(input, target)
        check.check_scope(scope, input.ndim - 2, input.shape, "input")
        check.check_options(weight, ignore_index, label_smoothing, input, target, stats, shared=group is not None)
        setting = _setting(p, m, scope, group, input, fingerprint)
    flat = (
        input.flatten(2) if input.ndim > 2 else input.t().unsqueeze(0)
    )  # (B, C, ...) -> (B, C, N); (N, C) -> (1, C, N)
    pixel = PixelLoss(ignore_index, float(label_smoothing))
    return _pool_logits(flat, target, weight, pixel, None, setting, stats)


def upsampled_cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    p: float = 1.3,
    m: float = 0.25,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    scope: str = "image",
    group: dist.ProcessGroup | None = None,
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
        recomputes the logits and accumulates the gradient.

    Args:
        input: logits of shape (B, C, h, w).
        target: class indices of shape (B, H, W) with H >= h and W >= w.
        align_corners: as in ``F.interpolate``.
        p, m, weight, ignore_index, label_smoothing, scope, group, stats: see
            :func:`cross_entropy`. The prediction in ``stats`` has the shape of ``target``.

    Returns:
        A scalar: float64 for float64 logits, else float32.

    Example:
        >>> import torch, losspool
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> labels = torch.zeros(2, 64, 64, dtype=torch.long)
        >>> round(losspool.upsampled_cross_entropy(logits, labels).item(), 4)
        2.9444
    """
    group = resolve_group(scope, group)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(input), fingerprint):
        check.check_logits(input, target)
        check.check_enlargement(input, target, align_corners)
        check.check_scope(scope, 2, input.shape, "input")
        check.check_options(weight, ignore_index, label_smoothing, input, target, stats, shared=group is not None)
        setting = _setting(p, m, scope, group, input, fingerprint)
    pixel = PixelLoss(ignore_index, float(label_smoothing))
    enlargement = Enlargement(target.shape[1], target.shape[2], align_corners)
    return _pool_logits(input, target, weight, pixel, enlargement, setting, stats)


def max_pool(
    losses: Tensor,
    *,
    p: float = 1.3,
    m: float = 0.25,
    mask: Tensor | None = None,
    scope: str = "image",
    group: dist.ProcessGroup | None = None,
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
        mask: bool tensor of the shape of ``losses`` (default: all pixels count).
        p, m, scope, group, stats: see :func:`cross_entropy`.

    Returns:
        A scalar: float64 for float64 losses, else float32.

    Example:
        >>> import torch, losspool
        >>> losspool.max_pool(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), p=1, m=2).item()
        3.0
    """
    result, *pooled = _pool(losses, p, m, mask, scope, group, stats, weigh=stats is not None)
    if stats is not None:
        _fill(stats, pooled, None, losses.shape)
    return result


def pooling_weights(
    losses: Tensor,
    *,
    p: float = 1.3,
    m: float = 0.25,
    mask: Tensor | None = None,
    scope: str = "image",
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    r"""Return the optimal weight w* of every pixel, detached, in the shape of ``losses``.

    .. math:: w^*(u) = \tau \min(1, (\ell(u)/\alpha^*)^{q-1})

    Convention:
        Weights are per pool: they do not include the average over images that
        ``scope="image"`` takes. A zero loss gets weight 0, except at p = ∞ or m = n, where
        every valid pixel gets 1/n. At p = 1 the losses equal to the ⌈m⌉-th largest split the
        weight that the larger losses leave. Masked pixels get 0.

    Args:
        losses, p, m, mask, scope, group: see :func:`max_pool`.

    Returns:
        Weights in the shape of ``losses``: float64 for float64 losses, else float32.

    Example:
        >>> import torch, losspool
        >>> losspool.pooling_weights(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), p=1, m=2).tolist()
        [[0.5, 0.0, 0.5, 0.0]]
    """
    losses = losses.detach() if isinstance(losses, Tensor) else losses
    _, weights, *_ = _pool(losses, p, m, mask, scope, group, None, weigh=True)
    return weights.view(losses.shape)


def _pool(
    losses: Tensor,
    p: float,
    m: float,
    mask: Tensor | None,
    scope: str,
    group: dist.ProcessGroup | None,
    stats: PoolingStats | None,
    weigh: bool,
) -> tuple[Tensor, ...]:
    group = resolve_group(scope, group)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(losses), fingerprint):
        check.check_losses(losses, mask)
        check.check_scope(scope, losses.ndim - 1, losses.shape, "losses")
        check.check_stats(stats)
        if not kernels.usable(losses):  # the kernels check by themselves
            values = losses.detach() if mask is None else torch.where(mask, losses.detach(), 0.0)
            check.check_non_negative(values, "losses")
        setting = _setting(p, m, scope, group, losses, fingerprint)
    rows = losses.shape[0] if setting.per_image else 1
    flat = losses.reshape(rows, -1) if losses.numel() else losses.reshape(rows, 0)
    return pooled_losses(flat, None if mask is None else mask.reshape(flat.shape), setting, weigh)


def _pool_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pixel: PixelLoss,
    enlargement: Enlargement | None,
    setting: Setting,
    stats: PoolingStats | None,
) -> Tensor:
    pixels = input.shape[2] if enlargement is None else enlargement.height * enlargement.width
    flat = target.reshape(input.shape[0], pixels)
    try:
        loss, weights, alpha, tau, valid, prediction = pooled_cross_entropy(
            input, flat, weight, pixel, enlargement, setting, stats is not None
        )
    except (IndexError, RuntimeError):
        if host.host_may_look(target):
            check.check_labels(target, input.shape[1], pixel.ignore_index)
        raise
    if stats is not None:
        _fill(stats, [weights, alpha, tau, valid], prediction, target.shape)
    return loss


def _device_of(value: object) -> torch.device:
    return value.device if isinstance(value, Tensor) else torch.device("cpu")


def _setting(
    p: float, m: float, scope: str, group: dist.ProcessGroup | None, values: Tensor, fingerprint: list[str]
) -> Setting:
    pixels, share = check.check_m(m)
    setting = Setting(check.check_p(p), pixels, share, per_image=scope == "image")
    if group is None:
        return setting
    fingerprint += [f"p = {p!r}", f"m = {m!r}", f"{working_dtype(values)}"]
    return setting._replace(gather=gatherer(group), ranks=dist.get_world_size(group))


def _fill(stats: PoolingStats, pooled: list[Tensor], prediction: Tensor | None, shape: torch.Size) -> None:
    weights, alpha, tau, valid = pooled
    stats.alpha, stats.tau, stats.valid = alpha, tau, valid.long()
    bound = tau.to(weights.dtype).unsqueeze(1)
    stats.saturated = ((weights >= bound) & (bound > 0)).sum(1)
    stats.weights = weights.view(shape)
    stats.prediction = None if prediction is None else prediction.view(shape)
