"""The autograd functions of devices on which ``losspool.kernels`` is usable.

Unlike their counterparts for other devices, they keep no weights: the backward kernels compute
each pixel's weight from its loss. Labels and losses are checked by the kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from losspool import solver
from losspool.ops.first_order import first_order
from losspool.ops.pooling import Setting, trim


class LogitsOptions(NamedTuple):
    """The options of the per-pixel loss. ``size`` is (H, W) if the logits are coarse, else empty."""

    ignore_index: int
    label_smoothing: float
    size: tuple[int, ...]
    align_corners: bool


class PoolWithKernels(torch.autograd.Function):
    """Map (R, N) losses to the loss, the weights (only if ``weigh``), α, τ, n, and the number trimmed."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor | None, setting: Setting, weigh: bool) -> tuple[Any, ...]:
        from losspool.kernels import operators

        values, mask = losses.contiguous(), None if mask is None else mask.contiguous()
        trimmed = None
        if setting.trim:
            valid = values.float() if mask is None else torch.where(mask, values.float(), -1.0)
            largest = solver.trimmed(valid, setting.trim, setting.exchange)
            mask, trimmed = ~largest if mask is None else mask & ~largest, largest.sum(1)
        loss, table, factor = _solve(values, mask, setting, from_logits=False)
        ctx.save_for_backward(losses, mask, table, factor)
        ctx.setting = setting
        weights = operators.pixel_weights(values, mask, table, setting.p) if weigh else None
        return _finish(ctx, loss, table, weights, trimmed)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        from losspool.kernels import operators

        if grad is None:
            return (None,) * 4
        losses, mask, table, factor = ctx.saved_tensors
        incoming = _incoming(table, factor, grad, ctx.setting)
        gradient = operators.losses_gradient(losses.contiguous(), mask, *incoming, ctx.setting.p)
        return gradient, None, None, None


class CrossEntropyWithKernels(torch.autograd.Function):
    """Map logits (B, C, N) or (B, C, h, w) to the loss, the weights (only if ``predict``), α, τ, n, the number
    trimmed, and the prediction (only if ``predict``)."""

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
        pools, trimmed = trim(losses if setting.per_image else losses.view(1, -1), setting)
        loss, table, factor = _solve(pools, None, setting, from_logits=True)
        losses = pools.view(losses.shape)
        ctx.save_for_backward(logits, target, class_weight, losses, peaks, log_totals, table, factor)
        ctx.options, ctx.setting = options, setting
        if not predict:
            return *_finish(ctx, loss, table, None, trimmed), None
        weights = operators.pixel_weights(pools, None, table, setting.p)
        return *_finish(ctx, loss, table, weights, trimmed, prediction), prediction

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        from losspool.kernels import operators

        if grad is None:
            return (None,) * 6
        ignore_index, smoothing, size, align = ctx.options
        *pixels, table, factor = ctx.saved_tensors
        tensors = (*pixels, *_incoming(table, factor, grad, ctx.setting))
        p = ctx.setting.p
        gradient = operators.logits_gradient(*tensors, ignore_index, smoothing, p, size, align)  # type: ignore[call-arg]
        return gradient, None, None, None, None, None


def _solve(losses: Tensor, mask: Tensor | None, setting: Setting, from_logits: bool) -> tuple[Tensor, Tensor, Tensor]:
    from losspool.kernels import operators

    arguments = (losses, mask, setting.p, setting.m, setting.share, from_logits)
    if setting.exchange is None:
        return operators.pool_losses(*arguments)
    return operators.pool_shared_losses(*arguments, setting.exchange, setting.ranks)


def _finish(
    ctx: Any, loss: Tensor, table: Tensor, weights: Tensor | None, trimmed: Tensor | None, *more: Tensor
) -> tuple[Any, ...]:
    """Return the loss, the weights, α, τ, n and the number trimmed. Only the loss is differentiable."""
    from losspool.kernels import operators

    per_pool = table[:, operators.ALPHA], table[:, operators.TAU], table[:, operators.COUNT]
    ctx.set_materialize_grads(False)
    found = (weights, *per_pool, trimmed)
    ctx.mark_non_differentiable(*(each for each in found if each is not None), *more)
    return table[:, operators.VALUE].float() if ctx.setting.each else loss, *found


def _incoming(table: Tensor, factor: Tensor, grad: Tensor, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """Return the table, the factor and the incoming gradient as kernels read them: one number for all pools.

    If each pool has a gradient of its own, it becomes part of the pool's largest weight.
    """
    from losspool.kernels import operators

    if not setting.each:
        return table, factor, grad.contiguous()
    table = table.clone()
    table[:, operators.UNIT] *= grad * setting.ranks
    return table, torch.ones_like(factor), torch.ones_like(grad[:1])
