"""The cross-entropy of each pixel of a block, and the coefficients of its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PixelLoss(NamedTuple):
    """The options of the per-pixel loss, named as in ``F.cross_entropy``."""

    ignore_index: int
    label_smoothing: float


def void_and_indices(labels: Tensor, pixel: PixelLoss, classes: int) -> tuple[Tensor | None, Tensor]:
    """Return 1 where a pixel is void and 0 elsewhere, None if none is, and a class for every pixel."""
    # Floats are compared several times faster than int64. A float32 holds all integers up to 2^24, so rounding
    # turns no other label into a class or the void one.
    exact = max(abs(pixel.ignore_index), classes) < 1 << 24
    values = labels.to(torch.float32 if exact else torch.float64)
    void = torch.eq(values if exact else labels.long(), pixel.ignore_index, out=torch.empty_like(values))
    any_void = float(void.sum()) > 0
    if any_void:
        values.sub_(void, alpha=float(pixel.ignore_index))  # to class 0
    if float(values.amin()) < 0 or float(values.amax()) >= classes:
        raise IndexError("a label is neither a class nor void")
    return (void, values.long()) if any_void else (None, labels.long())


def void_and_indices_unseen(labels: Tensor, pixel: PixelLoss, classes: int) -> tuple[Tensor, Tensor]:
    """The same where the host must not look, and labels are checked elsewhere."""
    labels = labels.long()
    return labels == pixel.ignore_index, labels.clamp(0, classes - 1)


def pixel_losses(
    block: Tensor,
    peak: Tensor,
    indices: Tensor,
    class_weight: Tensor | None,
    pixel: PixelLoss,
    memory: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Map logits (b, C, n), the largest of each pixel and its class, (b, n), to losses and Σ exp(logit - peak)."""
    weight = None if class_weight is None else class_weight.to(block.dtype)
    below = torch.sub(block, peak.unsqueeze(1), out=memory)  # at most 0
    picked = below.gather(1, indices.unsqueeze(1)).squeeze(1)
    smoothing = pixel.label_smoothing
    if smoothing > 0:
        spread_out = below.sum(1) if weight is None else (below * weight.view(1, -1, 1)).sum(1)
    exponentials = (below.exp_() if memory is not None else below.exp()).sum(1)
    log_sum = exponentials.log()
    losses = log_sum - picked
    if weight is not None:
        losses = losses * weight[indices]
    if smoothing > 0:
        every = log_sum * (block.shape[1] if weight is None else weight.sum())
        losses = (1.0 - smoothing) * losses + (smoothing / block.shape[1]) * (every - spread_out)
    return losses, exponentials


def gradient_shares(
    factors: Tensor, labels: Tensor, class_weight: Tensor | None, *, pixel: PixelLoss, classes: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the per-pixel coefficients (hard, soft, total) of the gradient Σ factors·∂ℓ.

    Let a be the factor, ε the smoothing and c the class weights. Then a·∂ℓ/∂logits is
    total·softmax - hard·onehot(y) - soft, where hard = a·(1-ε)·c_y has shape (b, 1, n),
    soft = a·ε·c/C has shape (b, C, n) (None without smoothing), and total = hard + Σ soft.
    """
    factors = factors.unsqueeze(1)
    hard = factors if pixel.label_smoothing == 0 else (1.0 - pixel.label_smoothing) * factors
    if class_weight is not None:
        class_weight = class_weight.to(factors.dtype)
        hard = hard * class_weight[labels.clamp(0, classes - 1)].unsqueeze(1)
    if pixel.label_smoothing == 0:
        return hard, None, hard
    shares = factors.new_ones(classes) if class_weight is None else class_weight
    soft = factors * (shares * (pixel.label_smoothing / classes)).view(1, -1, 1)
    return hard, soft, hard + soft.sum(1, keepdim=True)
