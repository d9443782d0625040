"""Cross-entropy pooled from logits to scalar in one autograd function.

``F.cross_entropy`` keeps the log-probabilities of every pixel and class for the backward pass.
Here nothing of that size outlives a block of pixels: the forward pass keeps one weight per
pixel, and the backward pass computes the softmax again while writing the gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool import _device
from losspool.ops.first_order import first_order
from losspool.ops.logits import CoarseLogits, FullLogits, working_dtype
from losspool.ops.pooling import Setting, combine, pool


class PixelLoss(NamedTuple):
    """How a pixel's loss comes from its logits, as ``F.cross_entropy`` names it."""

    ignore_index: int
    label_smoothing: float


class Enlargement(NamedTuple):
    """The size that coarse logits are enlarged to before the loss."""

    height: int
    width: int
    align_corners: bool


class PooledCrossEntropy(torch.autograd.Function):
    """Logits and labels (B, N) to the scalar loss, and what ``PoolingStats`` shows.

    Logits are (B, C, N), or with an enlargement (B, C, h, w).
    """

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
    ) -> tuple[Tensor | None, ...]:
        source = _source(logits, enlargement)
        losses = logits.new_empty(target.shape, dtype=working_dtype(logits))
        prediction = torch.empty_like(target) if predict else None
        for place in source.places():
            block = source.read(place)
            labels = target[place.images, place.pixels]
            losses[place.images, place.pixels] = _pixel_losses(block, labels, class_weight, pixel)
            if prediction is not None:
                prediction[place.images, place.pixels] = block.argmax(1)
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, pooled.weights, factor, class_weight)
        ctx.pixel, ctx.enlargement = pixel, enlargement
        ctx.set_materialize_grads(False)
        extras = (pooled.weights, pooled.alpha, pooled.tau, pooled.valid, prediction)
        ctx.mark_non_differentiable(*(tensor for tensor in extras if tensor is not None))
        return loss.to(losses.dtype), *extras

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        logits, target, weights, factor, class_weight = ctx.saved_tensors
        source = _source(logits, ctx.enlargement)
        scale = (grad.double() * factor).to(weights.dtype).unsqueeze(1)  # (R, 1)
        weights = weights.view(target.shape)
        result = source.gradient()
        for place in source.places():
            factors = weights[place.images, place.pixels] * (scale if scale.shape[0] == 1 else scale[place.images])
            labels = target[place.images, place.pixels]
            block = _pixel_gradient(source.read(place), labels, factors, class_weight, ctx.pixel)
            source.write(place, block, result)
        return result.to(logits.dtype), None, None, None, None, None, None


def _source(logits: Tensor, enlargement: Enlargement | None) -> FullLogits | CoarseLogits:
    return FullLogits(logits) if enlargement is None else CoarseLogits(logits, *enlargement)


def _pixel_losses(block: Tensor, labels: Tensor, class_weight: Tensor | None, pixel: PixelLoss) -> Tensor:
    """(b, C, n) logits to (b, n) losses; a void pixel gets -1, as the solver wants it."""
    losses = F.cross_entropy(
        block,
        labels,
        weight=None if class_weight is None else class_weight.to(block.dtype),
        ignore_index=pixel.ignore_index,
        label_smoothing=pixel.label_smoothing,
        reduction="none",
    )
    return torch.where(labels == pixel.ignore_index, -1.0, losses + 0.0)  # + 0.0: see PoolLosses


def _pixel_gradient(
    block: Tensor, labels: Tensor, factors: Tensor, class_weight: Tensor | None, pixel: PixelLoss
) -> Tensor:
    """∂(Σ factors·ℓ)/∂logits: with a = factor, ε the smoothing and c the class weights,

    a·[((1-ε)·c_y + ε·Σc/C)·softmax - (1-ε)·c_y·onehot(y) - ε·c/C], and exactly 0 where void.
    """
    classes = block.shape[1]
    void = labels == pixel.ignore_index
    labels = torch.where(void, 0, labels).unsqueeze(1)  # any class: the factor of a void pixel is 0
    hard = (1.0 - pixel.label_smoothing) * factors.unsqueeze(1)  # (b, 1, n)
    if class_weight is not None:
        hard = hard * class_weight.to(block.dtype)[labels]
    soft = None
    if pixel.label_smoothing > 0:
        shares = block.new_ones(classes) if class_weight is None else class_weight.to(block.dtype)
        soft = factors.unsqueeze(1) * (shares * (pixel.label_smoothing / classes)).view(1, -1, 1)  # (b, C, n)
    total = hard if soft is None else hard + soft.sum(1, keepdim=True)
    gradient = torch.softmax(block, 1)
    if torch.compiler.is_compiling():
        index = torch.arange(classes, device=block.device).view(1, -1, 1)
        gradient = gradient * total - torch.where(index == labels, hard, 0.0)  # fuses; a scatter would not
    else:
        gradient.mul_(total).scatter_add_(1, labels, -hard)
    if soft is not None:
        gradient = gradient - soft
    if not (_device.host_may_look(block) and bool(gradient.sum().isfinite())):
        # A void pixel's logits may hold anything, and 0·NaN is NaN.
        gradient = torch.where(void.unsqueeze(1), 0.0, gradient)
    return gradient
