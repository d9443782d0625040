"""One loss of the table on a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import losspool
from losspool._targets import check_labels
from losspool.segmentation.base import UserError, first_line, out_of_memory
from losspool.segmentation.data import IGNORE, ClassIndex
from losspool.segmentation.losses.class_weights import balancing_weights
from losspool.segmentation.losses.settings import LossConfig
from losspool.segmentation.losses.table import PLAIN_MEAN, loss_named, options_of
from losspool.segmentation.models import ALIGN_CORNERS, covered, enlarge

Scope = Literal["image", "batch", "global"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Coarse logits (B, C, h, w) and labels (B, H, W)."""

    logits: Tensor
    labels: Tensor
    stride: int | None

    @cached_property
    def full(self) -> Tensor:
        """(B, C, H, W): the logits at label resolution, in float32 at least. All terms share them."""
        return enlarge(wide(self.logits), (self.labels.shape[1], self.labels.shape[2]), self.stride)


@dataclass(frozen=True, eq=False)
class TermResult:
    """The value of a term, with detached by-products."""

    loss: Tensor
    weights: Tensor
    """(B, H, W): the weight of each pixel's cross-entropy in the term."""
    stats: losspool.PoolingStats
    """Its prediction is cut to the labels, and None if the term did not need one."""


class Term(nn.Module):
    """Computes one loss. Class weights are the loss's own, else those of the settings."""

    class_weights: Tensor | None

    def __init__(self, name: str, settings: LossConfig, index: ClassIndex | None) -> None:
        super().__init__()
        self.name, self.loss = name, loss_named(name)
        self._check(settings)
        self.options = options_of(name, settings)
        weights = None
        if self.loss.class_weights is not None:
            weights = self.loss.class_weights(index_for(f"loss {name!r}", index))
        elif settings.class_weights != "none" and self.loss.region_loss is None:
            weights = balancing_weights(settings, index_for("loss.class_weights", index))
        self.register_buffer("class_weights", None if weights is None else torch.from_numpy(weights).float(), False)

    def _check(self, settings: LossConfig) -> None:
        if self.loss.class_weights is not None and settings.class_weights != "none":
            raise UserError(
                f"loss {self.name!r} has class weights of its own and cannot take loss.class_weights, "
                f"got {settings.class_weights!r}; use cross_entropy instead of {self.name}"
            )
        if self.loss.region_loss is not None and settings.trim:
            raise UserError(
                f"loss {self.name!r} has no loss per pixel to trim; set loss.trim to 0, not {settings.trim:g}"
            )
        if self.loss.region_loss is not None and settings.scope == "global":
            raise UserError(f"loss {self.name!r} cannot span processes; set loss.scope to image or batch, not global")

    def forward(self, batch: Batch, settings: LossConfig, seeds: Sequence[int]) -> TermResult:
        """``settings`` hold no schedules."""
        if self.loss.region_loss is not None or self.loss.pixel_loss is not None:  # the cross-entropy checks them
            check_labels(batch.labels.long(), batch.logits.shape[1], IGNORE)
        if self.loss.region_loss is not None:
            return self._region(self.loss.region_loss, batch, settings)
        target, scope = batch.labels, settings.scope
        if self.loss.keep_pixels is not None:
            target = self._called(self.loss.keep_pixels, target, settings, seeds)
        if self.loss.keep_hard is not None:
            target = self._called(self.loss.keep_hard, batch.full.detach(), target, settings)
            scope = "batch" if scope == "image" else scope
        p, share = PLAIN_MEAN if self.loss.pooling is None else self.loss.pooling(settings, **self.options)
        m = f"{share}px" if isinstance(share, int) else share
        if self.loss.pixel_loss is None:
            found = self._cross_entropy(batch, target, settings, scope, p, m)
        else:
            found = self._pixels(self.loss.pixel_loss, batch, target, settings, scope, p, m)
        if scope == settings.scope:
            return found
        # Where each image is a pool, a loss is the average over images: weights that sum to 1 over the batch are
        # smaller by their number.
        images = (batch.labels != IGNORE).flatten(1).any(1).sum()
        return TermResult(found.loss, found.weights * images, found.stats)

    def _cross_entropy(
        self, batch: Batch, target: Tensor, settings: LossConfig, scope: Scope, p: float, m: float | str
    ) -> TermResult:
        height, width = target.shape[1:]
        bottom, right = covered(batch.logits, (height, width), batch.stride)
        stats = losspool.PoolingStats()
        loss = losspool.upsampled_cross_entropy(
            batch.logits,
            F.pad(target, (0, right - width, 0, bottom - height), value=IGNORE),
            p=p,
            m=m,
            weight=self.class_weights,
            ignore_index=IGNORE,
            label_smoothing=settings.label_smoothing,
            scope=scope,
            trim=settings.trim,
            stats=stats,
            align_corners=ALIGN_CORNERS,
        )
        weights = stats.weights[:, :height, :width]
        if self.class_weights is not None:
            weights = weights * self._weight_of(target)
        stats.prediction = stats.prediction[:, :height, :width]
        return TermResult(loss, weights, stats)

    def _pixels(
        self,
        pixel_loss: Callable[..., Any],
        batch: Batch,
        target: Tensor,
        settings: LossConfig,
        scope: Scope,
        p: float,
        m: float | str,
    ) -> TermResult:
        # A smoothed label spreads over classes, each with its own weight, as in F.cross_entropy.
        inside = self.loss.smooths_weights and settings.label_smoothing > 0
        more = (self.class_weights,) if inside else ()
        losses, valid = self._called(pixel_loss, batch.full, target, settings, *more), target != IGNORE
        if not isinstance(losses, Tensor) or losses.shape != target.shape:
            raise self._wrong(f"a loss per pixel of shape {tuple(target.shape)}", losses)
        negative = losses.detach()[(losses < 0) & valid] if target.device.type == "cpu" else losses.new_empty(0)
        if len(negative):
            raise UserError(f"loss {self.name!r} must not be negative, got {float(negative[0])!r}")
        if self.class_weights is not None and not inside:
            losses = losses * self._weight_of(target)
        stats = losspool.PoolingStats()
        loss = losspool.max_pool(losses, p=p, m=m, mask=valid, scope=scope, trim=settings.trim, stats=stats)
        entropy = F.cross_entropy(batch.full.detach(), target.long(), ignore_index=IGNORE, reduction="none")
        factor = torch.where(entropy > 0, losses.detach() / entropy, 0.0)
        return TermResult(loss, stats.weights * factor, stats)

    def _region(self, region_loss: Callable[..., Any], batch: Batch, settings: LossConfig) -> TermResult:
        """A loss of regions gives no weight to any pixel's cross-entropy, and has no α."""
        loss = self._called(region_loss, batch.full, batch.labels, settings)
        if not isinstance(loss, Tensor) or loss.ndim:
            raise self._wrong("a single loss", loss)
        valid = (batch.labels != IGNORE).flatten(1).sum(1)
        none, weights = valid.double() * 0, torch.zeros_like(batch.labels, dtype=loss.dtype)
        stats = losspool.PoolingStats(none, none, valid, torch.zeros_like(valid), weights)
        return TermResult(loss, weights, stats)

    def _called(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the table, perhaps another package's. Mistakes in it become one sentence."""
        try:
            return hook(*arguments, **self.options)
        except UserError:
            raise
        except Exception as error:  # another package's code may raise anything
            if out_of_memory(error):
                raise
            raise UserError(f"loss {self.name!r} raised {type(error).__name__}: {first_line(error)}") from error

    def _wrong(self, wanted: str, got: Any) -> UserError:
        found = tuple(got.shape) if isinstance(got, Tensor) else type(got).__name__
        return UserError(f"loss {self.name!r} must return {wanted}, got {found}")

    def _weight_of(self, labels: Tensor) -> Tensor:
        """(B, H, W): the class weight of every pixel; arbitrary for void pixels."""
        weights = cast(Tensor, self.class_weights)
        return weights[labels.long().clamp(max=len(weights) - 1)]


def wide(logits: Tensor) -> Tensor:
    """In float32, or float64 if they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def index_for(what: str, index: ClassIndex | None) -> ClassIndex:
    """Raise ``UserError`` if there is no class index."""
    if index is None:
        raise UserError(f"{what} needs the class frequencies of the training data; pass their class index")
    return index
