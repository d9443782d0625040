"""Losses by name, alone and combined, computed on coarse logits."""

from losspool.segmentation.losses.criterion import Criterion, LossResult, needs_index
from losspool.segmentation.losses.settings import LossConfig, parse_m
from losspool.segmentation.losses.table import LOSSES, Loss

__all__ = ["LOSSES", "Criterion", "Loss", "LossConfig", "LossResult", "needs_index", "parse_m"]
