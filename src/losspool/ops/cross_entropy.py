"""Pooled cross-entropy, from logits to scalar, in one autograd function.

``F.cross_entropy`` writes the log-probabilities of every pixel and class, a gradient of them, and the
gradient of the logits. Here the forward pass writes the exponentials of the softmax, and the backward
pass turns them into the gradient in place. Where the logits are upsampled or have half precision, no
buffer of that size outlives a block of pixels: the backward pass computes the exponentials again.

Under ``torch.compile`` a version without blocks runs instead, because the compiler fuses the
operations on the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool import kernels
from losspool.ops.first_order import first_order
from losspool.ops.labels import HardLabels, SoftLabels
from losspool.ops.logits import CoarseLogits, FullLogits, Part, Place, interpolated, working_dtype
from losspool.ops.pixel_losses import PixelLoss, gradient_shares, pixel_losses, void_and_indices_unseen
from losspool.ops.pooling import Pooled, Setting, combine, pool, pooled_losses
from losspool.solver import host
from losspool.solver.threads import spread


class Enlargement(NamedTuple):
    """The size to which coarse logits are upsampled before the loss."""

    height: int
    width: int
    align_corners: bool


# Beyond as many classes the kernels leave full-size logits to torch, up to a size at which its copies matter.
_MOST_CLASSES, _MANY_LOGITS = 512, 1 << 26

Result = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""The loss, w*, α, τ, n, the number of trimmed losses if any are, and the arg-max prediction if requested.

On GPUs w* is None unless the prediction is requested."""


def pooled_cross_entropy(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    pixel: PixelLoss,
    enlargement: Enlargement | None,
    setting: Setting,
    predict: bool,
) -> Result:
    """Pool the cross-entropy of logits (B, C, N), or (B, C, h, w) with ``enlargement``, and labels (B, N).

    The target may also hold class probabilities (B, C, N).
    """
    soft, read = target.ndim == 3, kernels_read(logits, coarse=enlargement is not None)
    composed = target.requires_grad or not _in_blocks(logits) if soft else kernels.usable(logits) and not read
    if composed or host.is_symbolic(logits, target, class_weight):
        return _composed(_enlarged(logits, enlargement), target, class_weight, pixel, setting, predict)
    if read:
        from losspool.ops.with_kernels import CrossEntropyWithKernels, LogitsOptions

        options = LogitsOptions(*pixel, *(((), False) if enlargement is None else (enlargement[:2], enlargement[2])))
        return CrossEntropyWithKernels.apply(logits, target, class_weight, options, setting, predict)
    if not torch.compiler.is_compiling():
        return _BlockwiseCrossEntropy.apply(logits, target, class_weight, pixel, enlargement, setting, predict)
    logits = _enlarged(logits, enlargement)
    return _FusedCrossEntropy.apply(logits, target.long(), class_weight, pixel, setting, predict)


def kernels_read(logits: Tensor, *, coarse: bool) -> bool:
    """Whether kernels compute losses from these logits, and check labels and class weights themselves.

    A program loops over the classes of its pixels. If these are many and the pixels few, torch's cross-entropy keeps
    more of a GPU busy.
    """
    few = coarse or logits.shape[1] <= _MOST_CLASSES or logits.numel() > _MANY_LOGITS
    return kernels.usable(logits) and few


def _in_blocks(logits: Tensor) -> bool:
    """Whether the loss is computed in blocks: not by a GPU's kernels, nor under ``torch.compile``."""
    return not kernels.usable(logits) and not torch.compiler.is_compiling()


def _enlarged(logits: Tensor, enlargement: Enlargement | None) -> Tensor:
    if enlargement is None:
        return logits
    size = enlargement.height, enlargement.width
    return interpolated(logits.to(working_dtype(logits)), size, enlargement.align_corners).flatten(2)


def _composed(
    logits: Tensor, target: Tensor, class_weight: Tensor | None, pixel: PixelLoss, setting: Setting, predict: bool
) -> Result:
    """Pool the losses that torch's cross-entropy gives, where operations are traced, or the target has a gradient."""
    logits = logits.to(working_dtype(logits))
    weight = None if class_weight is None else class_weight.to(logits.dtype)
    prediction = logits.detach().argmax(1) if predict else None
    if target.ndim == 3:
        target, valid = target.to(logits.dtype), None
    else:
        target = target.long()
        valid = target != pixel.ignore_index
        logits = logits.masked_fill(~valid.unsqueeze(1), 0.0)  # whatever the logits of a void pixel are
    losses = F.cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if valid is None else pixel.ignore_index,
        reduction="none",
        label_smoothing=pixel.label_smoothing,
    )
    if not setting.per_image:
        losses, valid = losses.reshape(1, -1), None if valid is None else valid.reshape(1, -1)
    return *pooled_losses(losses, valid, setting, predict), prediction


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
        ctx.exponentials = source.new_exponentials() if ctx.needs_input_grad[0] else None
        labels = _labels(target, class_weight, pixel, source.look)
        read = _read_losses(source, labels, predict, ctx.exponentials)
        pooled = pool(read.losses if setting.per_image else read.losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, pooled.weights, factor, class_weight, read.sums)
        ctx.pixel, ctx.enlargement, ctx.clean = pixel, enlargement, read.clean
        return _finish(ctx, loss, pooled, read.prediction)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        logits, target, weights, factor, class_weight, sums = ctx.saved_tensors
        source = _source(logits, ctx.enlargement)
        labels = _labels(target, class_weight, ctx.pixel, source.look)
        scale = (grad * factor).to(weights.dtype).unsqueeze(1)  # (R, 1)
        weights = weights.view(labels.shape)
        # They become the gradient. A second backward pass, with retain_graph=True, computes them again.
        exponentials, ctx.exponentials = ctx.exponentials, None
        result = source.new_gradient() if exponentials is None else exponentials

        def start() -> Callable[[list[Place]], Part]:
            buffer = source.buffer()

            def run(job: list[Place]) -> Part:
                part = source.new_part(job, result)
                for place in job:
                    spot = place[:2]
                    factors = weights[spot] * (scale if scale.shape[0] == 1 else scale[place.images])
                    if exponentials is None:
                        block, memory = source.read(place, buffer, part, for_softmax=True)
                        gradient = torch.sub(block, block.amax(1, keepdim=True), out=memory).exp_()
                    else:
                        gradient = exponentials[place.images, :, place.pixels]
                    divisor = gradient.sum(1) if sums is None else sums[spot]
                    labels.to_gradient(place, gradient, divisor, factors, ctx.clean)
                    source.write(place, gradient, part)
                return part

            return run

        jobs = source.jobs()
        parts = spread(start, jobs, source.size if source.look else 0)
        return source.collect(jobs, parts, result), None, None, None, None, None, None


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
        peak = block.amax(1)
        void, indices = void_and_indices_unseen(target, pixel, block.shape[1])
        losses, sums = pixel_losses(block, peak, indices, class_weight, pixel)
        losses = torch.where(void, -1.0, losses)
        pooled = pool(losses if setting.per_image else losses.view(1, -1), setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(logits, target, peak, sums, pooled.weights, factor, class_weight)
        ctx.pixel = pixel
        return _finish(ctx, loss, pooled, block.argmax(1) if predict else None)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        logits, target, peak, sums, weights, factor, class_weight = ctx.saved_tensors
        block = logits.to(weights.dtype)
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)
        factors = weights.view(scale.shape[0], -1) * scale
        hard, soft, total = gradient_shares(
            factors.view(target.shape), target, class_weight, pixel=ctx.pixel, classes=block.shape[1]
        )
        # Compare labels and classes as floats: unlike a scatter or an int64 comparison, this vectorises.
        labels = target.to(block.dtype).unsqueeze(1)
        classes = torch.arange(block.shape[1], dtype=block.dtype, device=block.device).view(1, -1, 1)
        exponentials = (block - peak.unsqueeze(1)).exp()
        gradient = exponentials * (total / sums.unsqueeze(1)) - torch.where(classes == labels, hard, 0.0)
        if soft is not None:
            gradient = gradient - soft
        gradient = torch.where(labels == float(ctx.pixel.ignore_index), 0.0, gradient)
        return gradient.to(logits.dtype), None, None, None, None, None


def _finish(ctx: Any, loss: Tensor, pooled: Pooled, prediction: Tensor | None) -> Result:
    found = (*pooled[1:], prediction)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(each for each in found if each is not None))
    return loss.to(pooled.weights.dtype), *found


class Read(NamedTuple):
    """What the forward pass finds in the logits, in the shape of the labels."""

    losses: Tensor  # -1 if void
    sums: Tensor | None  # Σ exp(logit - peak), if the source keeps them
    prediction: Tensor | None  # the arg-max class, if requested
    clean: bool  # whether no sum is NaN


def _read_losses(
    source: FullLogits | CoarseLogits, labels: HardLabels | SoftLabels, predict: bool, exponentials: Tensor | None
) -> Read:
    """Compute each pixel's loss, and fill ``exponentials``, exp(logit - peak), if given.

    A void pixel's logits may hold any value. If one is NaN, so is the softmax, and multiplying it
    by 0 in the backward pass does not give 0.
    """
    losses = source.buffer().new(labels.shape)
    sums = torch.empty_like(losses) if source.keeps_sums else None
    kept = None if exponentials is None else Part(exponentials)
    prediction = torch.empty_like(losses, dtype=torch.int64) if predict else None

    def start() -> Callable[[list[Place]], bool]:
        buffer = source.buffer()

        def run(job: list[Place]) -> bool:
            clean = source.look
            for place in job:
                spot = place[:2]
                block, memory = source.read(place, buffer, kept)
                if prediction is None:
                    peak = torch.amax(block, 1)
                else:
                    peak, prediction[spot] = block.max(1)  # several times faster than argmax
                losses[spot], total, finite = labels.losses(place, block, peak, memory)
                if sums is not None:
                    sums[spot] = total
                clean = clean and (finite or not math.isnan(float(total.sum())))
            return clean

        return run

    clean = spread(start, source.jobs(), source.size if source.look else 0)
    return Read(losses, sums, prediction, all(clean) and source.look)


def _labels(target: Tensor, class_weight: Tensor | None, pixel: PixelLoss, look: bool) -> HardLabels | SoftLabels:
    return (HardLabels if target.ndim == 2 else SoftLabels)(target, class_weight, pixel, look)


def _source(logits: Tensor, enlargement: Enlargement | None) -> FullLogits | CoarseLogits:
    return FullLogits(logits) if enlargement is None else CoarseLogits(logits, *enlargement)
