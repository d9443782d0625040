"""The table of losses by name. To add a loss, add an entry.

Every loss pools per-pixel losses: p = ∞ is the plain mean, p = 1 the mean of the hardest pixels. All of them therefore
share one exact, strip-wise implementation and the same ``scope``. An entry states only what differs from the plain
mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.base import UserError, import_by_path, is_import_path
from losspool.segmentation.data import IGNORE, ClassIndex

if TYPE_CHECKING:
    from losspool.segmentation.losses.settings import LossConfig


@dataclass(frozen=True)
class Loss:
    """An entry of the table. The default is the plain mean of the cross-entropy."""

    pooling: Callable[[LossConfig], tuple[float, float | int]] | None = None
    """p and m of loss max-pooling. A loss with pooling has an α: pixels with a loss above it get the largest weight."""
    class_weights: Callable[[ClassIndex], NDArray[np.float64]] | None = None
    """(C,): a factor for the losses of each class, computed from the pixel counts of the training data."""
    pixel_loss: Callable[[Tensor, Tensor, LossConfig], Tensor] | None = None
    """Replaces the cross-entropy: maps logits (B, C, H, W) and labels (B, H, W) to per-pixel losses ≥ 0. Its values at
    void pixels are ignored. It needs logits at full resolution, which costs memory."""
    keep_pixels: Callable[[Tensor, LossConfig, Sequence[int]], Tensor] | None = None
    """Maps labels (B, H, W) and one seed per image to labels in which the pixels not trained on are void."""


def inverse_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """1/(C · share of the valid pixels), so that the mean weight of a pixel is 1; 0 for classes not in the data."""
    pixels = index.pixels.sum(0).astype(np.float64)
    present = pixels > 0
    frequency = pixels / pixels.sum() * present.sum()
    return np.divide(1.0, frequency, out=np.zeros_like(pixels), where=present)


def median_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """Median frequency divided by the class's frequency (Eigen and Fergus, 2015); 0 for classes not in the data.

    A class's frequency is its number of pixels divided by all pixels of the images that contain the class.
    """
    pixels = index.pixels.sum(0).astype(np.float64)
    present = pixels > 0
    area = ((index.pixels > 0) * index.sizes.prod(1)[:, None]).sum(0)
    frequency = np.divide(pixels, area, out=np.zeros_like(pixels), where=present)
    return np.divide(np.median(frequency[present]), frequency, out=np.zeros_like(pixels), where=present)


def focal_loss(logits: Tensor, labels: Tensor, settings: LossConfig) -> Tensor:
    """(1 - q)^γ times the cross-entropy, where q is the probability of the label (Lin et al., 2017)."""
    entropy = F.cross_entropy(
        logits, labels.long(), ignore_index=IGNORE, reduction="none", label_smoothing=settings.label_smoothing
    )
    label = labels.long().clamp(max=logits.shape[1] - 1)[:, None]
    likely = logits.log_softmax(1).gather(1, label).squeeze(1).exp()
    # Clamp above 0: for γ < 1 the derivative of the power is infinite at 0.
    return (1 - likely).clamp(min=torch.finfo(likely.dtype).eps) ** settings.focal_gamma * entropy


def random_pixels(labels: Tensor, settings: LossConfig, seeds: Sequence[int]) -> Tensor:
    """Keep m random valid pixels of each image and make the others void (PixelNet, Bansal et al., 2016).

    Pixels are drawn on the CPU from one seed per image, so that the choice is the same on every device.
    """
    kept, m = labels.clone(), settings.share
    for image, seed in zip(kept, seeds, strict=True):
        valid = (image != IGNORE).flatten().nonzero().squeeze(1)
        wanted = min(m if isinstance(m, int) else max(round(m * len(valid)), 1), len(valid))
        order = torch.randperm(len(valid), generator=torch.Generator().manual_seed(seed)).to(valid.device)
        image.view(-1)[valid[order[wanted:]]] = IGNORE
    return kept


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(),
    "lmp": Loss(pooling=lambda settings: (settings.p, settings.share)),
    "inverse_frequency": Loss(class_weights=inverse_frequency),
    "median_frequency": Loss(class_weights=median_frequency),
    "bootstrapping": Loss(pooling=lambda settings: (1.0, settings.share)),
    "focal": Loss(pixel_loss=focal_loss),
    "random_pixels": Loss(keep_pixels=random_pixels),
}
"""Keys are values of ``loss.name``. A loss of another package is named by its import path instead."""

PLAIN_MEAN: tuple[float, float | int] = (math.inf, 1.0)


def loss_named(name: str) -> Loss:
    """Look up a loss in ``LOSSES``, or import it by path."""
    if not is_import_path(name):
        return LOSSES[name]
    loss: Any = import_by_path(name, "loss")
    if not isinstance(loss, Loss):
        raise UserError(f"loss {name!r} must be a losspool.segmentation.losses.Loss, got {type(loss).__name__}")
    return loss
