"""The trainer, and what only it needs: sampling, loader, validation, processes."""

from losspool.segmentation.training.loader import CropDataset
from losspool.segmentation.training.previews import WEIGHT_UNIT
from losspool.segmentation.training.sampling import CropSampler, RunningIoU
from losspool.segmentation.training.trainer import Trainer

__all__ = ["WEIGHT_UNIT", "CropDataset", "CropSampler", "RunningIoU", "Trainer"]
