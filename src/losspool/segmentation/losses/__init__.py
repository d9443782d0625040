"""Losses by name, alone and combined, computed on coarse logits."""

from losspool.segmentation.losses.criterion import Criterion, LossResult, needs_index
from losspool.segmentation.losses.settings import LossConfig
from losspool.segmentation.losses.table import LOSSES, Loss
from losspool.segmentation.losses.values import parse_m

__all__ = ["LOSSES", "Criterion", "Loss", "LossConfig", "LossResult", "needs_index", "parse_m"]
