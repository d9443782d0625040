"""Cross-entropy pooled from logits to scalar in one autograd function.

``F.cross_entropy`` keeps the log-probabilities of every pixel and class for the backward pass.
Here nothing of that size outlives a block of pixels: the forward pass keeps one weight per
pixel, and the backward pass computes the softmax again while writing the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool import _device
from losspool.ops.first_order import first_order
from losspool.ops.pooling import Setting, combine, pool

# Logits of one block: about what a core's second-level cache holds.
_BLOCK = 1 << 18


class PixelLoss(NamedTuple):
    """How a pixel's loss comes from its logits, as ``F.cross_entropy`` names it."""

    weight: Tensor | None
    ignore_index: int
    label_smoothing: float


class PooledCrossEntropy(torch.autograd.Function):
    """Logits (B, C, N) and labels (B, N) to the scalar loss."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, pixel: PixelLoss, setting: Setting, predict: bool
    ) -> tuple[Tensor | None, ...]:
        losses = logits.new_empty(target.shape, dtype=_working_dtype(logits))
        prediction = torch.empty_like(target) if predict else None
        for images, pixels in _blocks(logits):
            block = logits[images, :, pixels].to(losses.dtype)
            labels = target[images, pixels]
            losses[images, pixels] = _pixel_losses(block, labels, pixel)
            if prediction is not None:
                prediction[images, pixels] = block.argmax(1)
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, pooled.weights, factor, pixel.weight)
        ctx.pixel = pixel._replace(weight=None)
        ctx.set_materialize_grads(False)
        extras = (pooled.weights, pooled.alpha, pooled.tau, pooled.count, prediction)
        ctx.mark_non_differentiable(*(tensor for tensor in extras if tensor is not None))
        return loss.to(losses.dtype), *extras

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None, None, None]:
        if grad is None:
            return None, None, None, None, None
        logits, target, weights, factor, class_weight = ctx.saved_tensors
        pixel = ctx.pixel._replace(weight=class_weight)
        scale = (grad.double() * factor).to(weights.dtype).unsqueeze(1)  # (R, 1)
        weights = weights.view(target.shape)
        result = torch.empty_like(logits)
        for images, pixels in _blocks(logits):
            block = logits[images, :, pixels].to(weights.dtype)
            factors = weights[images, pixels] * (scale if scale.shape[0] == 1 else scale[images])
            _write_gradient(block, target[images, pixels], factors, pixel, out=result[images, :, pixels])
        return result, None, None, None, None


def _pixel_losses(block: Tensor, labels: Tensor, pixel: PixelLoss) -> Tensor:
    """(b, C, n) logits to (b, n) losses; a void pixel gets -1, as the solver wants it."""
    losses = F.cross_entropy(
        block,
        labels,
        weight=None if pixel.weight is None else pixel.weight.to(block.dtype),
        ignore_index=pixel.ignore_index,
        label_smoothing=pixel.label_smoothing,
        reduction="none",
    )
    return torch.where(labels == pixel.ignore_index, -1.0, losses + 0.0)  # + 0.0: see PoolLosses


def _write_gradient(block: Tensor, labels: Tensor, factors: Tensor, pixel: PixelLoss, out: Tensor) -> None:
    """∂(Σ factors·ℓ)/∂logits: with a = factor, ε the smoothing and c the class weights,

    a·[((1-ε)·c_y + ε·Σc/C)·softmax - (1-ε)·c_y·onehot(y) - ε·c/C], and exactly 0 where void.
    """
    classes = block.shape[1]
    void = labels == pixel.ignore_index
    labels = torch.where(void, 0, labels).unsqueeze(1)  # any class: the factor of a void pixel is 0
    hard = (1.0 - pixel.label_smoothing) * factors.unsqueeze(1)  # (b, 1, n)
    soft = None
    if pixel.weight is not None:
        hard = hard * pixel.weight.to(block.dtype)[labels]
    if pixel.label_smoothing > 0:
        shares = block.new_full((classes,), 1.0) if pixel.weight is None else pixel.weight.to(block.dtype)
        soft = factors.unsqueeze(1) * (shares * (pixel.label_smoothing / classes)).view(1, -1, 1)  # (b, C, n)
    total = hard if soft is None else hard + soft.sum(1, keepdim=True)
    gradient = torch.softmax(block, 1).mul_(total)
    gradient.scatter_add_(1, labels, -hard)
    if soft is not None:
        gradient.sub_(soft)
    if not (_device.host_may_look(block) and bool(gradient.sum().isfinite())):
        # A void pixel's logits may hold anything, and 0·NaN is NaN.
        gradient = torch.where(void.unsqueeze(1), 0.0, gradient)
    out.copy_(gradient)


def _blocks(logits: Tensor) -> Iterator[tuple[slice, slice]]:
    """Ranges of images and pixels that cover (B, C, N) logits: cache-sized on the CPU, else all."""
    images, classes, size = logits.shape
    if not _device.host_may_look(logits):
        yield slice(None), slice(None)
        return
    pixel_step = max(_BLOCK // classes, 1)
    image_step = max(_BLOCK // max(classes * size, 1), 1)
    for image in range(0, images, image_step):
        for begin in range(0, size, pixel_step):
            yield slice(image, image + image_step), slice(begin, begin + pixel_step)


def _working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32
