"""Losses of regions rather than pixels: Dice and Lovász-Softmax.

Both take logits (B, C, H, W) and labels (B, H, W), average over the classes present in the labels, and ignore void
pixels: their gradient is 0. With ``loss.scope=image`` every image is a separate region, and images without valid
pixels do not count; otherwise the batch is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from losspool.segmentation.data import IGNORE

if TYPE_CHECKING:
    from losspool.segmentation.losses.settings import LossConfig


def dice_loss(logits: Tensor, labels: Tensor, settings: LossConfig) -> Tensor:
    """1 - 2 Σ q·y / (Σ q + Σ y) per class, with q its probability and y = 1 at its pixels (Milletari et al., 2016).

    The denominator sums probabilities, as most implementations do, and not their squares.
    """
    likely, truth = _regions(logits, labels, settings)
    losses = 1 - 2 * (likely * truth).sum(2) / (likely.sum(2) + truth.sum(2)).clamp(min=1e-12)
    return _mean_of_present(losses, truth)


def lovasz_loss(logits: Tensor, labels: Tensor, settings: LossConfig) -> Tensor:
    """Lovász-Softmax, ``classes='present'``: the convex closure of 1 - IoU per class (Berman et al., 2018)."""
    likely, truth = _regions(logits, labels, settings)
    # Void pixels have an error of 0. They sort last, where they change neither the value nor any gradient.
    errors, order = (truth - likely).abs().sort(dim=2, descending=True)
    truth = truth.gather(2, order)
    total = truth.sum(2, keepdim=True)
    union = total + (1 - truth).cumsum(2)
    jaccard = 1 - (total - truth.cumsum(2)) / union.clamp(min=1e-12)
    steps = jaccard.diff(dim=2, prepend=torch.zeros_like(total))
    return _mean_of_present((errors * steps).sum(2), truth)


def _regions(logits: Tensor, labels: Tensor, settings: LossConfig) -> tuple[Tensor, Tensor]:
    """(R, C, N) and (R, C, N): probabilities, and 1 where a pixel is of the class; both 0 at void pixels."""
    valid = (labels != IGNORE)[:, None]
    likely = torch.where(valid, logits, 0.0).softmax(1) * valid
    hot = F.one_hot(torch.where(valid[:, 0], labels.long(), 0), logits.shape[1])
    truth = hot.movedim(3, 1).to(likely) * valid
    if settings.scope != "image":  # (B, C, H, W) -> (1, C, B, H, W)
        likely, truth = (each.transpose(0, 1)[None] for each in (likely, truth))
    return likely.flatten(2), truth.flatten(2)


def _mean_of_present(losses: Tensor, truth: Tensor) -> Tensor:
    """The mean of losses (R, C) over the classes present in each region, then over regions with a valid pixel."""
    present = truth.sum(2) > 0
    regions = (losses * present).sum(1) / present.sum(1).clamp(min=1)
    return regions.sum() / present.any(1).sum().clamp(min=1)
