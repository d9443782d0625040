"""Turns draws into batches: reads images, crops and stacks them, optionally in worker processes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from losspool.segmentation.base import BrokenFileError, UserError
from losspool.segmentation.config import Config
from losspool.segmentation.data import IGNORE, Augmentation, Dataset, Pixels, crop, read_next_pair, read_pair
from losspool.segmentation.training.micro_batches import MicroBatches
from losspool.segmentation.training.sampling import CropSampler, Draw, DrawStream
from losspool.segmentation.training.workers import init_worker, watched

PREFETCH = 2
"""Batches that each worker prepares in advance."""


@dataclass
class Batch:
    """Crops of equal size, and the draws they come from."""

    images: Tensor
    """(B, H, W, 3), uint8, as read. The network's preprocessing runs on the device."""
    labels: Tensor
    """(B, H, W), uint8."""
    draws: list[Draw]
    valid: int
    """Number of crops that have a valid pixel."""
    skipped: int = 0
    """Number of crops taken from another image because the drawn one is broken."""
    broken: list[BrokenFileError] = field(default_factory=list)
    """The errors of the broken images."""

    def pin_memory(self) -> Batch:
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())


Crop = tuple[Pixels, Pixels, Draw, list[BrokenFileError]]


class CropDataset(torch.utils.data.Dataset[Crop | UserError]):
    """Maps a draw to its crop.

    A file that cannot be read is returned as an error, not raised: a loader worker would turn the exception's
    one-sentence message into a traceback. With ``skip_broken``, the next readable image takes its place. The crop is
    still a function of the draw, but is not aimed at a class.
    """

    def __init__(self, dataset: Dataset, augmentation: Augmentation, skip_broken: bool = False) -> None:
        self._dataset = dataset
        self._augmentation = augmentation
        self._skip_broken = skip_broken

    def __getitem__(self, draw: Draw) -> Crop | UserError:
        broken: list[BrokenFileError] = []
        try:
            if self._skip_broken:
                at, image, label, broken = read_next_pair(self._dataset, draw.image)
                draw = Draw(at, draw.seed) if broken else draw
            else:
                image, label = read_pair(self._dataset, draw.image)
        except UserError as error:
            return error
        return *crop(image, label, self._augmentation, draw.seed, draw.aim), draw, broken


def stack(crops: Sequence[Crop | UserError]) -> Batch | UserError:
    made = [each for each in crops if not isinstance(each, UserError)]
    if len(made) < len(crops):
        return next(each for each in crops if isinstance(each, UserError))
    images, labels, draws, broken = zip(*made, strict=True)
    return Batch(
        torch.from_numpy(np.stack(images)),
        torch.from_numpy(np.stack(labels)),
        list(draws),
        sum(bool((label != IGNORE).any()) for label in labels),
        sum(map(bool, broken)),
        [error for errors in broken for error in errors],
    )


def crop_loader(
    dataset: Dataset,
    augmentation: Augmentation,
    stream: DrawStream,
    *,
    workers: int,
    lag: int,
    pin: bool = False,
    timeout: float = 0.0,
    skip_broken: bool = False,
) -> Generator[Batch, None, None]:
    """Yield the stream's batches in order. ``lag`` is the sampler's; the prefetch must stay below it.

    Closing the generator ends its workers. For ``timeout`` and ``skip_broken`` see the settings of ``data``.
    """
    check_prefetch(workers, lag)
    loader: DataLoader[Any] = DataLoader(
        CropDataset(dataset, augmentation, skip_broken),
        batch_sampler=stream,
        num_workers=workers,
        prefetch_factor=PREFETCH if workers else None,
        collate_fn=stack,
        pin_memory=pin,
        # The alarm of ``watched`` reaches the main thread only; elsewhere torch's own timeout is used.
        timeout=timeout if workers and threading.current_thread() is not threading.main_thread() else 0,
        worker_init_fn=init_worker,
        generator=torch.Generator(),  # else it would draw from the global one
    )
    return _raise_errors(watched(loader, timeout))


def training_batches(
    config: Config, fabric: Fabric, dataset: Dataset, sampler: CropSampler, first: int
) -> Generator[Batch, None, None]:
    """Yield this rank's micro-batches from step ``first`` to the end of the run."""
    zoom, (low, high) = config.data.zoom, config.data.scale
    split = MicroBatches.of(config.train, fabric.world_size)
    stream = DrawStream(
        sampler,
        batch=split.size,
        accumulate=split.number,
        rank=fabric.global_rank,
        ranks=fabric.world_size,
        first=first,
        last=config.train.steps,
    )
    return crop_loader(
        dataset,
        Augmentation(
            config.data.crop,
            (zoom * low, zoom * high),
            config.data.flip,
            photometric=config.data.photometric,
            grey=config.data.grey,
            rotate=config.data.rotate,
            turns=config.data.turns,
        ),
        stream,
        workers=config.data.workers,
        lag=config.sampling.lag,
        pin=fabric.device.type == "cuda",
        timeout=config.data.timeout,
        skip_broken=config.data.skip_broken,
    )


def draws_ahead(workers: int) -> int:
    """For how many steps at most the loader has drawn crops before they are trained on."""
    return workers * PREFETCH


def check_prefetch(workers: int, lag: int) -> None:
    if draws_ahead(workers) >= lag:
        raise UserError(f"sampling.lag = {lag} must exceed data.workers × {PREFETCH} = {draws_ahead(workers)}")


def _raise_errors(batches: Generator[Batch | UserError, None, None]) -> Generator[Batch, None, None]:
    with closing(batches):
        for batch in batches:
            if isinstance(batch, UserError):
                raise batch
            yield batch
