"""nnU-Net v2 (tested: 2.8.1): a trainer class. nnU-Net finds it by its name; see docs/integrations/nnunet.md."""

from __future__ import annotations

from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

from losspool import BCEWithLogitsLoss, CrossEntropyLoss


class nnUNetTrainerLossMaxPooling(nnUNetTrainer):  # noqa: N801 - nnU-Net's names of trainers
    """nnU-Net's trainer with its cross-entropy pooled per patch, at every level; Dice and weights are as before.

    A subclass may set other values of ``p``, ``m`` and ``trim``.
    """

    p: float = 1.3
    m: float | str = 0.25
    trim: float = 0.0

    def _build_loss(self) -> nn.Module:
        loss = super()._build_loss()
        compound = loss.loss if isinstance(loss, DeepSupervisionWrapper) else loss
        if isinstance(compound, DC_and_CE_loss):
            void = compound.ce.ignore_index
            compound.ce = CrossEntropyLoss(ignore_index=void, p=self.p, m=self.m, trim=self.trim)
        elif isinstance(compound, DC_and_BCE_loss) and not compound.use_ignore_label:
            compound.ce = BCEWithLogitsLoss(p=self.p, m=self.m, trim=self.trim)
        else:  # nnU-Net masks the binary losses voxel by voxel, after the call
            raise ValueError("regions with an ignore label cannot be pooled; drop the regions or the ignore label")
        return loss
