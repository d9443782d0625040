"""Claims the folder of a run, and checks that all processes are of the same run, on the same data."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import replace
from typing import Any

from lightning_fabric import Fabric
from torch.distributed import ProcessGroup

from losspool.segmentation.base import UserError, sweep
from losspool.segmentation.config import Config, flat
from losspool.segmentation.data import ClassIndex, Dataset
from losspool.segmentation.runs import (
    RunFolder,
    RunLock,
    check_folder,
    check_unsaved,
    never_stepped,
    newest_checkpoint,
    steps_in,
    write_config,
)
from losspool.segmentation.training.processes import gathered, handed_out

_OF_A_MACHINE = {"data.root", "data.cache", "data.workers", "data.timeout", "model.weights", "train.trackers"}
"""Settings that may differ between machines. When to save and to log must not: all processes meet there."""


def claim_and_read(
    folder: RunFolder, config: Config, fabric: Fabric, hosts: ProcessGroup | None, lock: RunLock, resume: bool
) -> tuple[Config, dict[str, Any] | None]:
    """Read the checkpoint to resume from, and return it with the config as the run has begun.

    Rank 0 reads, and hands what it found to the others, which may not see its folder. Raises ``UserError`` on every
    rank if the folder does not fit the config.
    """
    _check_same_settings(folder, config, fabric)
    found: tuple[Any, dict[str, Any] | None] | UserError | None = None
    if fabric.global_rank == 0:
        try:
            found = _claim_and_read_here(folder, config, lock, resume)
        except UserError as error:
            found = error
    found = handed_out(hosts, found)
    if isinstance(found, UserError):
        raise found
    assert found is not None
    (exif, intensity), stored = found
    _check_newest(folder, fabric)
    return replace(config, data=replace(config.data, exif=exif, intensity=intensity)), stored


def _claim_and_read_here(folder: RunFolder, config: Config, lock: RunLock, resume: bool) -> tuple[Any, Any]:
    """How the run reads its images, and its newest checkpoint."""
    begun = folder.config.exists()
    if begun and (resume or never_stepped(folder)):  # before reading, so that nobody writes a newer one
        lock.claim()
    data = check_folder(folder, config, resume).data
    stored = newest_checkpoint(folder.checkpoints) if resume else None
    if begun and stored is None:
        check_unsaved(folder, config.train.checkpoint_every)
    return (data.exif, data.intensity), stored


def _check_same_settings(folder: RunFolder, config: Config, fabric: Fabric) -> None:
    """Raise ``UserError`` if the ranks were started with different settings: on several machines they may be."""
    fixed = {key: value for key, value in flat(config).items() if key not in _OF_A_MACHINE}
    for rank, others in enumerate(gathered(fabric, fixed)):
        for key, value in fixed.items():
            if others[key] != value:
                raise UserError(
                    f"{folder.path}: rank {rank} has {key} = {others[key]!r}, rank {fabric.global_rank} {value!r}; "
                    f"start all machines with the same settings"
                )


def check_same_data(config: Config, data: Dataset, index: ClassIndex, fabric: Fabric) -> None:
    """Raise ``UserError`` if the machines hold different data: each rank draws crops from all images."""
    names = hashlib.sha256("\n".join(data.names).encode(errors="surrogateescape")).hexdigest()
    mine = len(data), names, index.pixels.sum(0).tolist()
    for rank, others in enumerate(gathered(fabric, mine)):
        if others != mine:
            raise UserError(
                f"data.root={config.data.root}: rank {rank} has {others[0]} training images, rank {fabric.global_rank} "
                f"{mine[0]}, or other names or labels; all machines need the same data"
            )


def _check_newest(folder: RunFolder, fabric: Fabric) -> None:
    """Raise ``UserError`` if another rank has newer checkpoints than rank 0: a machine with a separate disk."""
    seen = gathered(fabric, (max(steps_in(folder.checkpoints), default=0), platform.node()))
    newest, host = max(seen)
    if newest > seen[0][0]:
        raise UserError(
            f"{folder.checkpoints}: {host} has a checkpoint of step {newest}, and {seen[0][1]}, which would write the "
            f"next one, none after step {seen[0][0]}; pass an --out that all machines share, or copy the folder"
        )


def begin(folder: RunFolder, config: Config, lock: RunLock) -> None:
    """Write the config to the run's folder, and delete temporary files of killed writers."""
    if not lock.held:
        lock.claim()
        if folder.config.exists():
            raise UserError(f"{folder.path}: another process has just started this run")
    sweep(folder.path)
    sweep(folder.previews)
    write_config(folder, config)
