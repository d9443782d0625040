"""The autograd functions of devices on which ``losspool.kernels`` is usable.

Unlike their counterparts for other devices, they keep no weights: the backward kernels compute
each pixel's weight from its loss. Labels and losses are checked by the kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from losspool.ops.first_order import first_order
from losspool.ops.pooling import Setting


class LogitsOptions(NamedTuple):
    """The options of the per-pixel loss. ``size`` is (H, W) if the logits are coarse, else empty."""

    ignore_index: int
    label_smoothing: float
    size: tuple[int, ...]
    align_corners: bool


class PoolWithKernels(torch.autograd.Function):
    """Map (R, N) losses to the scalar loss, the weights (only if ``weigh``), α, τ and n."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor | None, setting: Setting, weigh: bool) -> tuple[Any, ...]:
        from losspool.kernels import operators

        values, mask = losses.contiguous(), None if mask is None else mask.contiguous()
        loss, table, factor = _solve(values, mask, setting, from_logits=False)
        ctx.save_for_backward(losses, mask, table, factor)
        ctx.p = setting.p
        weights = operators.pixel_weights(values, mask, table, setting.p) if weigh else None
        return _finish(ctx, loss, table, weights)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        from losspool.kernels import operators

        if grad is None:
            return (None,) * 4
        losses, mask, table, factor = ctx.saved_tensors
        gradient = operators.losses_gradient(losses.contiguous(), mask, table, factor, grad.contiguous(), ctx.p)
        return gradient, None, None, None


class CrossEntropyWithKernels(torch.autograd.Function):
    """Map logits (B, C, N) or (B, C, h, w) to the loss, weights and prediction (only if ``predict``), α, τ and n."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        class_weight: Tensor | None,
        options: LogitsOptions,
        setting: Setting,
        predict: bool,
    ) -> tuple[Any, ...]:
        from losspool.kernels import operators

        target = target.contiguous()
        class_weight = None if class_weight is None else class_weight.contiguous()
        ignore_index, smoothing, size, align = options
        losses, peaks, log_totals, prediction = operators.pixel_losses(
            logits, target, class_weight, ignore_index, smoothing, predict, size, align
        )
        pools = losses if setting.per_image else losses.view(1, -1)
        loss, table, factor = _solve(pools, None, setting, from_logits=True)
        ctx.save_for_backward(logits, target, class_weight, losses, peaks, log_totals, table, factor)
        ctx.options, ctx.p = options, setting.p
        if not predict:
            return *_finish(ctx, loss, table, None), None
        weights = operators.pixel_weights(pools, None, table, setting.p)
        return *_finish(ctx, loss, table, weights, prediction), prediction

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        from losspool.kernels import operators

        if grad is None:
            return (None,) * 6
        ignore_index, smoothing, size, align = ctx.options
        tensors = (*ctx.saved_tensors, grad.contiguous())
        gradient = operators.logits_gradient(*tensors, ignore_index, smoothing, ctx.p, size, align)  # type: ignore[call-arg]
        return gradient, None, None, None, None, None


def _solve(losses: Tensor, mask: Tensor | None, setting: Setting, from_logits: bool) -> tuple[Tensor, Tensor, Tensor]:
    from losspool.kernels import operators

    arguments = (losses, mask, setting.p, setting.m, setting.share, from_logits)
    if setting.gather is None:
        return operators.pool_losses(*arguments)
    return operators.pool_shared_losses(*arguments, setting.gather, setting.ranks)


def _finish(ctx: Any, loss: Tensor, table: Tensor, weights: Tensor | None, *more: Tensor) -> tuple[Any, ...]:
    """Return the loss, the weights, α, τ and n. All but the loss, and ``more``, are not differentiable."""
    from losspool.kernels import operators

    per_pool = table[:, operators.ALPHA], table[:, operators.TAU], table[:, operators.COUNT]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*per_pool, *(() if weights is None else (weights,)), *more)
    return loss, weights, *per_pool
