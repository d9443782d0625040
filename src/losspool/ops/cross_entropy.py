"""Pooled cross-entropy, from logits to scalar, in one autograd function.

``F.cross_entropy`` keeps the log-probabilities of every pixel and class for the backward pass.
Here no buffer of that size outlives a block of pixels: the forward pass keeps one weight per
pixel, and the backward pass recomputes the softmax while it writes the gradient.

Under ``torch.compile`` a version without blocks runs instead, because the compiler fuses the
operations on the whole tensor.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool import kernels
from losspool.ops.first_order import first_order
from losspool.ops.logits import CoarseLogits, FullLogits, ruled_out, without_infinity, working_dtype
from losspool.ops.pooling import Pooled, Setting, combine, pool
from losspool.solver import host

# Logits up to this many are one block on CPUs.
_SMALL = 1 << 19


class PixelLoss(NamedTuple):
    """The options of the per-pixel loss, named as in ``F.cross_entropy``."""

    ignore_index: int
    label_smoothing: float


class Enlargement(NamedTuple):
    """The size to which coarse logits are upsampled before the loss."""

    height: int
    width: int
    align_corners: bool


Result = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]
"""The loss, w*, α, τ, n, and the arg-max prediction if requested. On GPUs w* is None unless that is requested too."""


def pooled_cross_entropy(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    pixel: PixelLoss,
    enlargement: Enlargement | None,
    setting: Setting,
    predict: bool,
) -> Result:
    """Pool the cross-entropy of logits (B, C, N), or (B, C, h, w) with ``enlargement``, and labels (B, N)."""
    if kernels.usable(logits):
        from losspool.ops.with_kernels import CrossEntropyWithKernels, LogitsOptions

        options = LogitsOptions(*pixel, *(((), False) if enlargement is None else (enlargement[:2], enlargement[2])))
        return CrossEntropyWithKernels.apply(logits, target, class_weight, options, setting, predict)
    if not torch.compiler.is_compiling():
        if enlargement is None and host.host_may_look(logits) and 0 < logits.numel() <= _SMALL:
            return _SmallCrossEntropy.apply(logits, target, class_weight, pixel, setting, predict)
        return _BlockwiseCrossEntropy.apply(logits, target, class_weight, pixel, enlargement, setting, predict)
    if enlargement is not None:
        size, align = (enlargement.height, enlargement.width), enlargement.align_corners
        finite = without_infinity(logits.to(working_dtype(logits)))
        logits = F.interpolate(finite, size, mode="bilinear", align_corners=align).flatten(2)
        logits = logits.masked_fill(ruled_out(logits), -math.inf)
    return _FusedCrossEntropy.apply(logits, target.long(), class_weight, pixel, setting, predict)


class _BlockwiseCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        class_weight: Tensor | None,
        pixel: PixelLoss,
        enlargement: Enlargement | None,
        setting: Setting,
        predict: bool,
    ) -> Result:
        source = _source(logits, enlargement)
        losses, prediction, ctx.clean = _read_losses(source, target, class_weight, pixel, predict)
        del source  # free its buffers before the solver allocates its own
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, pooled.weights, factor, class_weight)
        ctx.pixel, ctx.enlargement = pixel, enlargement
        return _finish(ctx, loss, pooled, prediction)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        logits, target, weights, factor, class_weight = ctx.saved_tensors
        source = _source(logits, ctx.enlargement)
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)  # (R, 1)
        weights = weights.view(target.shape)
        result = source.gradient()
        for place in source.places():
            block, labels = source.read(place), target[place.images, place.pixels].long()
            factors = weights[place.images, place.pixels] * (scale if scale.shape[0] == 1 else scale[place.images])
            hard, soft, total = _shares(factors, labels, class_weight, pixel=ctx.pixel, classes=block.shape[1])
            indices = labels.clamp(0, block.shape[1] - 1).unsqueeze(1)  # any class for void pixels: their share is 0
            softmax = torch.softmax(block, 1, out=source.scratch.second(block.shape))
            gradient = torch.mul(softmax, total, out=source.destination(place, result))
            gradient.scatter_add_(1, indices, -hard)
            if soft is not None:
                gradient.sub_(soft)
            if not ctx.clean:
                gradient.copy_(torch.where((labels == ctx.pixel.ignore_index).unsqueeze(1), 0.0, gradient))
            source.write(place, gradient, result)
        return result.to(logits.dtype), None, None, None, None, None, None


class _SmallCrossEntropy(torch.autograd.Function):
    """For logits that fit into a CPU's cache: in one block, and with the log-probabilities kept."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        class_weight: Tensor | None,
        pixel: PixelLoss,
        setting: Setting,
        predict: bool,
    ) -> Result:
        labels = target.long()
        logs = torch.log_softmax(logits.to(working_dtype(logits)), 1)
        void = labels == pixel.ignore_index
        losses = _losses_from_logs(logs, labels, class_weight, pixel).masked_fill_(void, -1.0)
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, labels, void, logs, pooled.weights, factor, class_weight)
        ctx.pixel = pixel
        return _finish(ctx, loss, pooled, logits.argmax(1) if predict else None)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        logits, labels, void, logs, weights, factor, class_weight = ctx.saved_tensors
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)  # (R, 1)
        factors = (weights * scale).view(labels.shape)
        hard, soft, total = _shares(factors, labels, class_weight, pixel=ctx.pixel, classes=logs.shape[1])
        gradient = logs.exp().mul_(total)
        gradient.scatter_add_(1, labels.masked_fill(void, 0).unsqueeze(1), hard.neg())
        if soft is not None:
            gradient.sub_(soft)
        gradient.masked_fill_(void.unsqueeze(1), 0.0)  # whatever the logits of a void pixel are
        return gradient.to(logits.dtype), None, None, None, None, None


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        class_weight: Tensor | None,
        pixel: PixelLoss,
        setting: Setting,
        predict: bool,
    ) -> Result:
        block = logits.to(working_dtype(logits))
        # The cross-entropy computes these two as well; the compiler merges them.
        peak = block.amax(1, keepdim=True)
        log_sum = (block - peak).exp().sum(1, keepdim=True).log()
        losses = _pixel_losses(block, target, class_weight, pixel) - (target == pixel.ignore_index).to(block.dtype)
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, peak, log_sum, pooled.weights, factor, class_weight)
        ctx.pixel = pixel
        return _finish(ctx, loss, pooled, block.argmax(1) if predict else None)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        logits, target, peak, log_sum, weights, factor, class_weight = ctx.saved_tensors
        block = logits.to(weights.dtype)
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)
        factors = weights.view(scale.shape[0], -1) * scale
        hard, soft, total = _shares(
            factors.view(target.shape), target, class_weight, pixel=ctx.pixel, classes=block.shape[1]
        )
        # Compare labels and classes as floats: unlike a scatter or an int64 comparison, this vectorises.
        labels = target.to(block.dtype).unsqueeze(1)
        classes = torch.arange(block.shape[1], dtype=block.dtype, device=block.device).view(1, -1, 1)
        gradient = ((block - peak) - log_sum).exp() * total - torch.where(classes == labels, hard, 0.0)
        if soft is not None:
            gradient = gradient - soft
        gradient = torch.where(labels == float(ctx.pixel.ignore_index), 0.0, gradient)
        return gradient.to(logits.dtype), None, None, None, None, None


def _finish(ctx: Any, loss: Tensor, pooled: Pooled, prediction: Tensor | None) -> Result:
    extras = (pooled.weights, pooled.alpha, pooled.tau, pooled.valid)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*extras, *(() if prediction is None else (prediction,)))
    return loss.to(pooled.weights.dtype), *extras, prediction


def _read_losses(
    source: FullLogits | CoarseLogits, target: Tensor, class_weight: Tensor | None, pixel: PixelLoss, predict: bool
) -> tuple[Tensor, Tensor | None, bool]:
    """Return each pixel's loss (-1 if void), its arg-max class if requested, and whether no log-softmax is NaN.

    A void pixel's logits may hold any value. If one is NaN, so is the softmax, and multiplying it
    by 0 in the backward pass does not give 0.
    """
    losses = torch.empty(target.shape, dtype=source.scratch.dtype, device=target.device)
    prediction = torch.empty_like(target, dtype=torch.int64) if predict else None
    clean = host.host_may_look(target)
    for place in source.places():
        block, labels = source.read(place), target[place.images, place.pixels].long()
        logs = source.scratch.second(block.shape)
        pixel_losses = _pixel_losses(block, labels, class_weight, pixel, logs)
        # The solver expects a negative loss for void pixels; so far it is 0.
        void = torch.eq(labels, pixel.ignore_index, out=torch.empty_like(pixel_losses))
        torch.sub(pixel_losses, void, out=losses[place.images, place.pixels])
        clean = clean and not bool(logs[:, 0].sum().isnan())
        if prediction is not None:
            prediction[place.images, place.pixels] = block.argmax(1)
    return losses, prediction, clean


def _source(logits: Tensor, enlargement: Enlargement | None) -> FullLogits | CoarseLogits:
    return FullLogits(logits) if enlargement is None else CoarseLogits(logits, *enlargement)


def _pixel_losses(
    block: Tensor, labels: Tensor, class_weight: Tensor | None, pixel: PixelLoss, logs: Tensor | None = None
) -> Tensor:
    """Map (b, C, n) logits to (b, n) losses, 0 for void pixels. The log-softmax is written to ``logs``."""
    return _losses_from_logs(torch.log_softmax(block, 1, out=logs), labels, class_weight, pixel)


def _losses_from_logs(logs: Tensor, labels: Tensor, class_weight: Tensor | None, pixel: PixelLoss) -> Tensor:
    """Map (b, C, n) log-probabilities to (b, n) losses, 0 for void pixels."""
    weight = None if class_weight is None else class_weight.to(logs.dtype)
    hard = F.nll_loss(logs, labels, weight, ignore_index=pixel.ignore_index, reduction="none")
    if pixel.label_smoothing == 0:
        return hard
    soft = -(logs.sum(1) if weight is None else (logs * weight.view(1, -1, 1)).sum(1))
    soft = torch.where(labels == pixel.ignore_index, 0.0, soft)
    return (1.0 - pixel.label_smoothing) * hard + (pixel.label_smoothing / logs.shape[1]) * soft


def _shares(
    factors: Tensor, labels: Tensor, class_weight: Tensor | None, *, pixel: PixelLoss, classes: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the per-pixel coefficients (hard, soft, total) of the gradient Σ factors·∂ℓ.

    Let a be the factor, ε the smoothing and c the class weights. Then a·∂ℓ/∂logits is
    total·softmax - hard·onehot(y) - soft, where hard = a·(1-ε)·c_y has shape (b, 1, n),
    soft = a·ε·c/C has shape (b, C, n) (None without smoothing), and total = hard + Σ soft.
    """
    factors = factors.unsqueeze(1)
    hard = (1.0 - pixel.label_smoothing) * factors
    if class_weight is not None:
        class_weight = class_weight.to(factors.dtype)
        hard = hard * class_weight[labels.clamp(0, classes - 1)].unsqueeze(1)
    if pixel.label_smoothing == 0:
        return hard, None, hard
    shares = factors.new_ones(classes) if class_weight is None else class_weight
    soft = factors * (shares * (pixel.label_smoothing / classes)).view(1, -1, 1)
    return hard, soft, hard + soft.sum(1, keepdim=True)
