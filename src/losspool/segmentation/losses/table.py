"""The table of losses: what each name means. To add a loss, add an entry.

Every loss pools a loss per pixel: the plain mean is p = ∞, the mean of the hardest pixels is p = 1. So all of them
share one exact, strip-wise implementation and the same ``scope``; an entry says only what differs from the plain mean.
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
    """An entry of the table. Everything left out is as in the plain mean of the cross-entropy."""

    pooling: Callable[[LossConfig], tuple[float, float | int]] | None = None
    """p and m of loss max-pooling. A loss with a pooling has an α: pixels above it get the largest weight."""
    class_weights: Callable[[ClassIndex], NDArray[np.float64]] | None = None
    """(C,): factors of the classes' losses, from the pixels of the training data."""
    pixel_loss: Callable[[Tensor, Tensor, LossConfig], Tensor] | None = None
    """From logits (B, C, H, W) and labels (B, H, W) a loss per pixel, ≥ 0, in place of the cross-entropy. Void pixels
    may hold anything. It needs the logits at full size, which costs memory."""
    keep_pixels: Callable[[Tensor, LossConfig, Sequence[int]], Tensor] | None = None
    """From labels (B, H, W) and a seed per image the labels of the pixels to train on; the others become void."""


def inverse_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """1/(C·share of the valid pixels), so that the mean weight of a pixel is 1; 0 for classes that no image holds."""
    pixels = index.pixels.sum(0).astype(np.float64)
    present = pixels > 0
    frequency = pixels / pixels.sum() * present.sum()
    return np.divide(1.0, frequency, out=np.zeros_like(pixels), where=present)


def median_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """The median frequency over the class's own (Eigen and Fergus, 2015); 0 for classes that no image holds.

    A frequency is the class's pixels over all pixels of the images that hold it.
    """
    pixels = index.pixels.sum(0).astype(np.float64)
    present = pixels > 0
    area = ((index.pixels > 0) * index.sizes.prod(1)[:, None]).sum(0)
    frequency = np.divide(pixels, area, out=np.zeros_like(pixels), where=present)
    return np.divide(np.median(frequency[present]), frequency, out=np.zeros_like(pixels), where=present)


def focal_loss(logits: Tensor, labels: Tensor, settings: LossConfig) -> Tensor:
    """(1 - q)^γ times the cross-entropy, q the probability of the label (Lin et al., 2017)."""
    entropy = F.cross_entropy(
        logits, labels.long(), ignore_index=IGNORE, reduction="none", label_smoothing=settings.label_smoothing
    )
    label = labels.long().clamp(max=logits.shape[1] - 1)[:, None]
    likely = logits.log_softmax(1).gather(1, label).squeeze(1).exp()
    # Not down to 0: for γ < 1 the slope of the power is infinite there.
    return (1 - likely).clamp(min=torch.finfo(likely.dtype).eps) ** settings.focal_gamma * entropy


def random_pixels(labels: Tensor, settings: LossConfig, seeds: Sequence[int]) -> Tensor:
    """``labels`` with all but m of each image's valid pixels made void (PixelNet, Bansal et al., 2016).

    Drawn on the CPU from each image's own seed, so that the choice is the same on every device.
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
"""By the name that ``loss.name`` gives. An outside package's loss is named by its import path instead."""

PLAIN_MEAN: tuple[float, float | int] = (math.inf, 1.0)


def loss_named(name: str) -> Loss:
    """The entry of ``LOSSES``, or what an import path leads to."""
    if not is_import_path(name):
        return LOSSES[name]
    loss: Any = import_by_path(name, "loss")
    if not isinstance(loss, Loss):
        raise UserError(f"loss {name!r} must be a losspool.segmentation.losses.Loss, got {type(loss).__name__}")
    return loss
