"""The configured loss on coarse logits: its value, the prediction and the weight of every pixel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

import losspool
from losspool.segmentation.base import UserError, is_import_path
from losspool.segmentation.data import ClassIndex
from losspool.segmentation.losses.class_weights import logit_offsets
from losspool.segmentation.losses.settings import LossConfig
from losspool.segmentation.losses.table import loss_named
from losspool.segmentation.losses.term import Batch, Scope, Term, index_for, wide
from losspool.segmentation.models import TrainingOutput


@dataclass
class LossResult:
    """The loss of a batch, with detached by-products of its computation."""

    loss: Tensor
    prediction: Tensor
    """(B, H, W): the arg-max of the logits at label resolution, without logit adjustment."""
    weights: Tensor
    """(B, H, W): the weight of each pixel's cross-entropy in the loss, including class weights and pixel factors. Terms
    such as Dice, which are not sums over pixels, add nothing."""
    stats: losspool.PoolingStats
    """α, and the numbers of valid and saturated pixels, of the term ``loss.name``."""


class Criterion(nn.Module):
    """Computes the configured loss from coarse logits (B, C, h, w) and labels (B, H, W)."""

    offsets: Tensor | None

    def __init__(
        self,
        settings: LossConfig,
        index: ClassIndex | None = None,
        stride: int | None = None,
        aux_weight: float = 0.0,
    ) -> None:
        """``index``, of the training data, may be None for losses that do not use class frequencies; see
        :func:`needs_index`. ``stride`` is the network's; see ``models.enlarge``. ``aux_weight`` is the weight of an
        auxiliary head's loss."""
        super().__init__()
        settings.check_terms()
        self._settings, self._stride, self._aux_weight = settings, stride, aux_weight
        terms = [Term(name, settings, index) for name in settings.weighted]
        self._terms = nn.ModuleList(terms)
        known = [key for term in terms if is_import_path(term.name) for key in term.options]
        for key in settings.args:
            if key not in known:
                raise UserError(f"unknown key {f'loss.args.{key}'!r}; choose from {', '.join(known) or 'none'}")
        if settings.class_weights != "none" and all(term.loss.region_loss for term in terms):
            raise UserError(
                f"loss.class_weights weight pixels, and {', '.join(settings.weighted)} have no loss per pixel; "
                f"leave it at none, or add a term such as cross_entropy"
            )
        offsets = None
        if settings.logit_adjustment:
            offsets = torch.from_numpy(logit_offsets(settings, index_for("loss.logit_adjustment", index))).float()
        self.register_buffer("offsets", offsets, persistent=False)

    @property
    def without_pixel_losses(self) -> list[str]:
        """The terms of the table that are not sums over pixels."""
        terms = cast("Iterable[Term]", self._terms)
        return [term.name for term in terms if term.loss.region_loss and not is_import_path(term.name)]

    @property
    def pools(self) -> bool:
        """Whether the loss has an α."""
        return loss_named(self._settings.name).pooling is not None

    @property
    def scope(self) -> Scope:
        """The pixels that are pooled together. A loss that selects hard pixels does so per process, with any scope."""
        selects = any(cast(Term, term).loss.keep_hard is not None for term in self._terms)
        return "batch" if selects else self._settings.scope

    def forward(
        self, output: Tensor | TrainingOutput, labels: Tensor, seeds: Sequence[int] = (), step: int | None = None
    ) -> LossResult:
        """``seeds``, one per image, are for losses that sample pixels; ``step``, from 0, for schedules."""
        settings = self._settings.at(step)
        if not isinstance(output, TrainingOutput):
            return self._computed(output, labels, settings, seeds)
        result, aux = (self._computed(logits, labels, settings, seeds) for logits in output)
        return replace(result, loss=result.loss + self._aux_weight * aux.loss)

    def _computed(self, logits: Tensor, labels: Tensor, settings: LossConfig, seeds: Sequence[int]) -> LossResult:
        # Bilinear weights sum to 1, so a constant per class can be added before the enlargement.
        adjusted = logits if self.offsets is None else wide(logits) + self.offsets[:, None, None]
        batch = Batch(adjusted, labels, self._stride)
        found = {name: term(batch, settings, seeds) for name, term in zip(settings.weighted, self._terms, strict=True)}
        return LossResult(
            torch.stack([weight * found[name].loss for name, weight in settings.weighted.items()]).sum(),
            self._prediction(logits, batch, [each.stats.prediction for each in found.values()]),
            torch.stack([weight * found[name].weights for name, weight in settings.weighted.items()]).sum(0),
            found[settings.name].stats,
        )

    def _prediction(self, logits: Tensor, batch: Batch, known: Sequence[Tensor | None]) -> Tensor:
        """The arg-max. A term on the cross-entropy knows it already, except where the logits are adjusted."""
        if self.offsets is not None:
            batch = Batch(logits.detach(), batch.labels, self._stride)
            known = ()
        found = next((each for each in known if each is not None), None)
        return batch.full.detach().argmax(1) if found is None else found


def needs_index(settings: LossConfig) -> bool:
    """Whether the loss uses class frequencies of the training data."""
    own = any(loss_named(name).class_weights for name in settings.weighted)
    return own or settings.class_weights != "none" or settings.logit_adjustment > 0
