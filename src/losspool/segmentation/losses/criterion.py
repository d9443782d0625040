"""Any loss of the table on coarse logits: its value, the prediction and the weight of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import losspool
from losspool.segmentation.base import UserError, first_line, out_of_memory
from losspool.segmentation.data import IGNORE
from losspool.segmentation.losses.settings import LossConfig
from losspool.segmentation.losses.table import PLAIN_MEAN, loss_named
from losspool.segmentation.models import ALIGN_CORNERS, covered, enlarge


@dataclass
class LossResult:
    """The loss of a batch, with detached by-products of its computation."""

    loss: Tensor
    prediction: Tensor
    """(B, H, W): the arg-max of the logits at label resolution."""
    weights: Tensor
    """(B, H, W): the weight of each pixel's cross-entropy in the loss, including class weights and pixel factors."""
    stats: losspool.PoolingStats
    """α, and the numbers of valid and saturated pixels."""


class Criterion(nn.Module):
    """Computes the configured loss from coarse logits (B, C, h, w) and labels (B, H, W)."""

    class_weights: Tensor | None

    def __init__(
        self, settings: LossConfig, class_weights: NDArray[np.float64] | None = None, stride: int | None = None
    ) -> None:
        """``class_weights`` are None for losses without them. ``stride`` is the network's; see ``models.enlarge``."""
        super().__init__()
        self._settings, self._stride = settings, stride
        self._loss = loss_named(settings.name)
        weights = None if class_weights is None else torch.from_numpy(class_weights).float()
        self.register_buffer("class_weights", weights, persistent=False)

    @property
    def pools(self) -> bool:
        """Whether the loss has an α."""
        return self._loss.pooling is not None

    def forward(self, logits: Tensor, labels: Tensor, seeds: Sequence[int] = ()) -> LossResult:
        """``seeds``, one per image, are for losses that sample pixels."""
        keep = self._loss.keep_pixels
        target = labels if keep is None else keep(labels, self._settings, seeds)
        p, m = PLAIN_MEAN if self._loss.pooling is None else self._loss.pooling(self._settings)
        if self._loss.pixel_loss is None:
            return self._cross_entropy(logits, target, p, m)
        full = enlarge(logits.float(), (labels.shape[1], labels.shape[2]), self._stride)
        losses = self._pixel_losses(full, target)
        if self.class_weights is not None:
            losses = losses * self._weight_of(target)
        stats = losspool.PoolingStats()
        loss = losspool.max_pool(losses, p=p, m=m, mask=target != IGNORE, scope=self._settings.scope, stats=stats)
        entropy = F.cross_entropy(full.detach(), target.long(), ignore_index=IGNORE, reduction="none")
        factor = torch.where(entropy > 0, losses.detach() / entropy, 0.0)
        return LossResult(loss, full.detach().argmax(1), cast(Tensor, stats.weights) * factor, stats)

    def _cross_entropy(self, logits: Tensor, target: Tensor, p: float, m: float | int) -> LossResult:
        height, width = target.shape[1:]
        bottom, right = covered(logits, (height, width), self._stride)
        stats = losspool.PoolingStats()
        loss = losspool.upsampled_cross_entropy(
            logits,
            F.pad(target, (0, right - width, 0, bottom - height), value=IGNORE),
            p=p,
            m=m,
            weight=self.class_weights,
            ignore_index=IGNORE,
            label_smoothing=self._settings.label_smoothing,
            scope=self._settings.scope,
            stats=stats,
            align_corners=ALIGN_CORNERS,
        )
        weights = cast(Tensor, stats.weights)[:, :height, :width]
        if self.class_weights is not None:
            weights = weights * self._weight_of(target)
        return LossResult(loss, cast(Tensor, stats.prediction)[:, :height, :width], weights, stats)

    def _pixel_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """(B, H, W). The loss may be another package's: mistakes in it become one sentence."""
        assert self._loss.pixel_loss is not None
        name, valid = self._settings.name, target != IGNORE
        try:
            losses = self._loss.pixel_loss(logits, target, self._settings)
        except Exception as error:  # another package's code may raise anything
            if out_of_memory(error):
                raise
            raise UserError(f"loss {name!r} raised {type(error).__name__}: {first_line(error)}") from error
        if not isinstance(losses, Tensor) or losses.shape != target.shape:
            got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise UserError(f"loss {name!r} must return a loss per pixel of shape {tuple(target.shape)}, got {got}")
        negative = losses.detach()[(losses < 0) & valid] if target.device.type == "cpu" else losses.new_empty(0)
        if len(negative):
            raise UserError(f"loss {name!r} must not be negative, got {float(negative[0])!r}")
        return losses

    def _weight_of(self, labels: Tensor) -> Tensor:
        """(B, H, W): the class weight of every pixel; arbitrary for void pixels."""
        weights = cast(Tensor, self.class_weights)
        return weights[labels.long().clamp(max=len(weights) - 1)]
