"""Losses by name, computed on coarse logits."""

from losspool.segmentation.losses.criterion import Criterion, LossResult
from losspool.segmentation.losses.settings import LossConfig, parse_m
from losspool.segmentation.losses.table import LOSSES, Loss, loss_named

__all__ = ["LOSSES", "Criterion", "Loss", "LossConfig", "LossResult", "loss_named", "parse_m"]
