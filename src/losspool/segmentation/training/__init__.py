"""The trainer and its parts: sampling, loader, validation and processes."""

from losspool.segmentation.training.loader import CropDataset, crop_loader
from losspool.segmentation.training.sampling import CropSampler, DrawStream, RunningIoU
from losspool.segmentation.training.trainer import Trainer, train_run
from losspool.segmentation.training.validation import WEIGHT_UNIT

__all__ = [
    "WEIGHT_UNIT",
    "CropDataset",
    "CropSampler",
    "DrawStream",
    "RunningIoU",
    "Trainer",
    "crop_loader",
    "train_run",
]
