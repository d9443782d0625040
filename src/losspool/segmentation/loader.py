"""From draws to batches: reads, cuts and stacks, in worker processes if there are any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from losspool.segmentation.data.augment import Augmentation, crop
from losspool.segmentation.data.protocol import Dataset, Pixels
from losspool.segmentation.errors import BrokenFileError, UserError
from losspool.segmentation.sampling import Draw, DrawStream

PREFETCH = 2
"""Batches that each worker holds ready."""


@dataclass
class Batch:
    """Crops of equal size, and what they were cut from."""

    images: Tensor
    """(B, H, W, 3), uint8, as read: the network's own preprocessing comes on the device."""
    labels: Tensor
    """(B, H, W), uint8."""
    draws: list[Draw]

    def pin_memory(self) -> Batch:
        return Batch(self.images.pin_memory(), self.labels.pin_memory(), self.draws)


def read_pair(dataset: Dataset, index: int) -> tuple[Image.Image, Pixels]:
    """Image and label; an error with the image's name where their sizes differ."""
    image, label = dataset.image(index), dataset.label(index)
    if (image.height, image.width) != label.shape:
        name = f"{dataset.name}: {dataset.names[index]}"
        rows, columns = label.shape
        raise BrokenFileError(name, f"the image is {image.width}×{image.height}, its label {columns}×{rows}")
    return image, label


class CropDataset(torch.utils.data.Dataset[tuple[Pixels, Pixels, Draw]]):
    """Makes the crop of a draw."""

    def __init__(self, dataset: Dataset, augmentation: Augmentation) -> None:
        self._dataset = dataset
        self._augmentation = augmentation

    def __getitem__(self, draw: Draw) -> tuple[Pixels, Pixels, Draw]:
        image, label = read_pair(self._dataset, draw.image)
        return *crop(image, label, self._augmentation, draw.seed, draw.aim), draw


def stack(crops: Sequence[tuple[Pixels, Pixels, Draw]]) -> Batch:
    images, labels, draws = zip(*crops, strict=True)
    return Batch(torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(labels)), list(draws))


def crop_loader(
    dataset: Dataset, augmentation: Augmentation, stream: DrawStream, *, workers: int, lag: int, pin: bool = False
) -> Iterable[Batch]:
    """The stream's batches in its order. ``lag`` is the sampler's: the prefetch must stay below it."""
    if workers * PREFETCH >= lag:
        raise UserError(f"sampling.lag = {lag} must exceed data.workers × {PREFETCH} = {workers * PREFETCH}")
    return DataLoader(
        CropDataset(dataset, augmentation),
        batch_sampler=stream,
        num_workers=workers,
        prefetch_factor=PREFETCH if workers else None,
        collate_fn=stack,
        pin_memory=pin,
    )
