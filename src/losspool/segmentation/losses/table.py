"""The table of losses by name, with their options. To add a loss, add an entry.

Every loss of pixels pools them: p = ∞ is the plain mean, p = 1 the mean of the hardest pixels. All of them therefore
share one exact, strip-wise implementation and the same ``scope``. An entry states only what differs from the plain
mean. Losses of regions have a separate function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.base import (
    Fraction,
    NonNegative,
    UserError,
    import_by_path,
    is_import_path,
    section,
    validate,
)
from losspool.segmentation.data import IGNORE, ClassIndex
from losspool.segmentation.losses.class_weights import inverse_frequency, median_frequency
from losspool.segmentation.losses.region import dice_loss, lovasz_loss
from losspool.segmentation.losses.values import PixelCount, parse_count

if TYPE_CHECKING:
    from losspool.segmentation.losses.settings import LossConfig


@dataclass(frozen=True)
class Loss:
    """An entry of the table. The default is the plain mean of the cross-entropy.

    All functions but ``class_weights`` also take the :class:`LossConfig`, and the ``options`` as keyword arguments.
    """

    pooling: Callable[..., tuple[float, float | int]] | None = None
    """p and m of loss max-pooling. A loss with pooling has an α: pixels with a loss above it get the largest weight."""
    scheduled: tuple[str, ...] = ()
    """Which of ``p`` and ``m``, which may have schedules, the loss uses: metrics then have them. Those of another
    package's loss have both."""
    class_weights: Callable[[ClassIndex], NDArray[np.float64]] | None = None
    """(C,): a factor for the losses of each class, computed from the pixel counts of the training data."""
    pixel_loss: Callable[..., Tensor] | None = None
    """Replaces the cross-entropy: maps logits (B, C, H, W) and labels (B, H, W) to per-pixel losses ≥ 0. Its values at
    void pixels are ignored. It needs logits at full resolution, which costs memory."""
    smooths_weights: bool = False
    """Whether ``pixel_loss`` applies the class weights itself when labels are smoothed. It then takes them, (C,) or
    None, after the settings. Otherwise its losses are multiplied by the weight of the label."""
    keep_pixels: Callable[..., Tensor] | None = None
    """Maps labels (B, H, W), settings and one seed per image to labels in which the pixels not trained on are void."""
    keep_hard: Callable[..., Tensor] | None = None
    """Maps logits (B, C, H, W) and labels (B, H, W) to labels in which the pixels not trained on are void. The loss is
    the mean over the kept pixels of the batch, for ``scope=image`` too."""
    region_loss: Callable[..., Tensor] | None = None
    """Maps logits (B, C, H, W) and labels (B, H, W) to the loss itself. No other field but ``options`` applies."""
    options: type[Any] | None = None
    """A dataclass of the loss's options, with types and defaults. Those of a loss in the table are settings of the
    section ``loss``, under the same names; those of another package's loss are in ``loss.args``."""


@section("loss")
class FocalOptions:
    """The options of ``focal``."""

    focal_gamma: NonNegative = 2.0
    """The exponent of the focal loss."""


def focal_loss(
    logits: Tensor, labels: Tensor, settings: LossConfig, weight: Tensor | None = None, *, focal_gamma: float
) -> Tensor:
    """(1 - q)^γ times the cross-entropy, where q is the probability of the label (Lin et al., 2017)."""
    entropy = F.cross_entropy(
        logits,
        labels.long(),
        weight=None if weight is None else weight.to(logits.dtype),
        ignore_index=IGNORE,
        reduction="none",
        label_smoothing=settings.label_smoothing,
    )
    # Clamp above 0: for γ < 1 the derivative of the power is infinite at 0.
    unlikely = (1 - _likelihood(logits, labels)).clamp(min=torch.finfo(logits.dtype).eps)
    return unlikely**focal_gamma * entropy


def random_pixels(labels: Tensor, settings: LossConfig, seeds: Sequence[int]) -> Tensor:
    """Keep m random valid pixels of each image and make the others void (PixelNet, Bansal et al., 2016).

    Pixels are drawn on the CPU from one seed per image, so that the choice is the same on every device.
    """
    if len(seeds) != len(labels):
        raise UserError(f"loss 'random_pixels' needs seeds=, a number per image: got {len(seeds)} for {len(labels)}")
    kept, m = labels.clone(), settings.share
    for image, seed in zip(kept, seeds, strict=True):
        valid = (image != IGNORE).flatten().nonzero().squeeze(1)
        wanted = min(m if isinstance(m, int) else max(round(m * len(valid)), 1), len(valid))
        order = torch.randperm(len(valid), generator=torch.Generator().manual_seed(seed)).to(valid.device)
        image.view(-1)[valid[order[wanted:]]] = IGNORE
    return kept


@section("loss")
class OhemOptions:
    """The options of ``ohem``."""

    ohem_threshold: Fraction = 0.7
    """ohem uses the pixels whose label has a lower probability than this."""
    min_kept: PixelCount = 100_000
    """ohem uses at least this many pixels of the batch: a number (``100000``), or a share of the valid pixels
    (``6%``)."""


def hard_pixels(
    logits: Tensor, labels: Tensor, settings: LossConfig, *, ohem_threshold: float, min_kept: str | float
) -> Tensor:
    """Keep the pixels whose label has a probability below the threshold, and at least the ``min_kept`` least probable.

    The public implementations drop pixels as probable as the next one beyond ``min_kept``, and with it all pixels where
    all are alike. Here pixels as probable as the last one of ``min_kept`` stay. Nothing waits for the device.
    """
    valid = labels != IGNORE
    likely = torch.where(valid, _likelihood(logits, labels), math.inf)
    least, pixels = parse_count(min_kept), valid.sum()
    wanted = (pixels * least).round().long() if isinstance(least, float) else torch.full_like(pixels, least)
    place = wanted.clamp(1, max(labels.numel(), 1)) - 1
    bound = likely.flatten().sort().values.gather(0, place[None])
    return torch.where((likely < ohem_threshold) | (likely <= bound), labels, IGNORE)


def _likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, H, W): the probability of each pixel's label; arbitrary for void pixels."""
    label = labels.long().clamp(max=logits.shape[1] - 1)[:, None]
    return logits.log_softmax(1).gather(1, label).squeeze(1).exp()


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(),
    "lmp": Loss(pooling=lambda settings: (settings.norm, settings.share), scheduled=("p", "m")),
    "inverse_frequency": Loss(class_weights=inverse_frequency),
    "median_frequency": Loss(class_weights=median_frequency),
    "bootstrapping": Loss(pooling=lambda settings: (1.0, settings.share), scheduled=("m",)),
    "ohem": Loss(keep_hard=hard_pixels, options=OhemOptions),
    "focal": Loss(pixel_loss=focal_loss, smooths_weights=True, options=FocalOptions),
    "random_pixels": Loss(keep_pixels=random_pixels, scheduled=("m",)),
    "dice": Loss(region_loss=dice_loss),
    "lovasz": Loss(region_loss=lovasz_loss),
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
    if loss.options is not None and not is_dataclass(loss.options):
        raise UserError(f"loss {name!r} must have a dataclass as its options, got {loss.options!r}")
    return loss


def options_of(name: str, settings: LossConfig) -> dict[str, Any]:
    """The options of a loss by name, as its functions take them."""
    options = loss_named(name).options
    if options is None:
        return {}
    known = [each.name for each in fields(options)]
    if not is_import_path(name):
        return {each: getattr(settings, each) for each in known}
    stated = {key: value for key, value in settings.args.items() if key in known}
    found = validate(options, stated, name="loss.args")
    return {each: getattr(found, each) for each in known}
