"""The trainer and its parts: sampling, loader, validation and processes."""

from losspool.segmentation.training.loader import CropDataset, crop_loader
from losspool.segmentation.training.sampling import CropSampler, DrawStream, RunningIoU
from losspool.segmentation.training.trainer import Trainer, train_run

__all__ = [
    "CropDataset",
    "CropSampler",
    "DrawStream",
    "RunningIoU",
    "Trainer",
    "crop_loader",
    "train_run",
]
