"""Prepares a run: claims its folder, and builds data, model, loss and optimizer from its config."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import nn

from losspool.segmentation.base import BrokenFileError, UserError, sweep
from losspool.segmentation.config import Config, ModelConfig
from losspool.segmentation.data import ClassIndex, ClassInfo, Dataset, FileDataset, Skip, check_classes, class_index
from losspool.segmentation.losses import Criterion
from losspool.segmentation.models import Model, ModelSpec, build_fine_tuned, build_from_spec, build_model
from losspool.segmentation.runs import (
    RunFolder,
    RunLock,
    check_folder,
    check_trackers,
    check_unsaved,
    fitting,
    never_stepped,
    newest_checkpoint,
    own_checkpoint,
    write_config,
)
from losspool.segmentation.training.loader import check_prefetch
from losspool.segmentation.training.optimization import build_optimizer
from losspool.segmentation.training.processes import gathered
from losspool.segmentation.training.sampling import CropSampler


@dataclass(frozen=True)
class Setup:
    """The parts of a run."""

    config: Config
    """With the range of intensities that was found."""
    data: Dataset
    val_data: Dataset | None
    """None without validation."""
    sampler: CropSampler
    model: Model
    index: ClassIndex
    criterion: Criterion
    network: Any
    """The model's module, wrapped by Fabric."""
    optimizer: Any


def build_setup(
    config: Config, fabric: Fabric, folder: RunFolder, stored: dict[str, Any] | None, broken: Skip | None
) -> Setup:
    """Build every part of a run. If there is a ``stored`` checkpoint, its weights are still to be restored."""
    check_prefetch(config.data.workers, config.sampling.lag)
    check_trackers(config.train.trackers)
    data = config.data.open(config.data.train)
    if isinstance(data, FileDataset) and data.reading != config.data.reading:
        config = replace(config, data=replace(config.data, intensity=data.reading.intensity))
    val_data = _validation_data(config)
    with fabric.rank_zero_first(local=True):  # one rank builds it, the others read the cache
        index = class_index(data, Path(config.data.cache) if config.data.cache else None, broken)
    sampler = CropSampler(index, config.sampling, config.seed)
    model = _fresh_model(config, data) if stored is None else _stored_model(folder, config, data, stored)
    if not model.spec.built_in or config.train.batch == 1:
        model.dry_run(*config.data.crop, config.train.batch)
    criterion = Criterion(config.loss, index, model.spec.logit_stride).to(fabric.device)
    module = model.module
    if config.train.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    optimizer = build_optimizer(model, config.train)
    network = cast(nn.Module, torch.compile(module)) if config.train.compile else module
    return Setup(config, data, val_data, sampler, model, index, criterion, *fabric.setup(network, optimizer))


def claim_and_read(
    folder: RunFolder, config: Config, fabric: Fabric, lock: RunLock, resume: bool
) -> dict[str, Any] | None:
    """Read the checkpoint to resume from. Raises ``UserError`` if the folder does not fit the config."""
    begun = folder.config.exists()
    again = resume or (begun and never_stepped(folder))
    if begun and again and fabric.global_rank == 0:  # before reading, so that nobody writes a newer one
        lock.claim()
    fabric.barrier()
    check_folder(folder, config, resume)
    stored = newest_checkpoint(folder.checkpoints) if resume else None
    seen = gathered(fabric, stored and stored.get("step"))
    if len(set(map(repr, seen))) > 1:
        raise UserError(f"{folder.checkpoints}: the ranks see different checkpoints, of steps {seen}")
    if begun and stored is None:
        check_unsaved(folder, config.train.checkpoint_every)
    return stored


def begin(folder: RunFolder, config: Config, lock: RunLock) -> None:
    """Write the config to the run's folder, and delete temporary files of killed writers."""
    if not lock.held:
        lock.claim()
        if folder.config.exists():
            raise UserError(f"{folder.path}: another process has just started this run")
    sweep(folder.path)
    sweep(folder.previews)
    write_config(folder, config)


def _stored_model(folder: RunFolder, config: Config, data: Dataset, stored: dict[str, Any]) -> Model:
    """Build the checkpoint's model. Raises ``UserError`` if the run or its data have changed."""
    with fitting(folder.checkpoints, "the run"):
        spec = ModelSpec.from_dict(stored["spec"])
        known = tuple(map(ClassInfo.of, stored["classes"]))
    if (spec.name, spec.num_classes) != (config.model.name, len(data.classes)):
        raise UserError(
            f"{folder.path}: its checkpoint is of {spec.name} with {spec.num_classes} classes, "
            f"the run is of {config.model.name} with {len(data.classes)}"
        )
    check_classes(known, data)
    return build_from_spec(spec)


def _fine_tuned(config: ModelConfig, path: Path, content: dict[str, Any], classes: int) -> Model:
    """Build the model from another run's checkpoint: its averaged weights, if it has any."""
    with fitting(path, "its own model"):
        spec, state = ModelSpec.from_dict(content["spec"]), {**content["model"], **content.get("averaged", {})}
    if spec.name != config.name:
        raise UserError(f"{path}: model.weights is of the model {spec.name}, model.name is {config.name}")
    return build_fine_tuned(
        spec, state, path, classes, output_stride=config.output_stride, batch_norm=config.batch_norm
    )


def _validation_data(config: Config) -> Dataset | None:
    if config.data.val is None:
        return None
    try:
        return config.data.open(config.data.val)
    except BrokenFileError:
        raise
    except UserError as error:
        raise UserError(f"{error}; data.val=null trains without validation") from None


def _fresh_model(config: Config, data: Dataset) -> Model:
    """Build the model from the run's seed, with the weights named in the config."""
    torch.manual_seed(config.seed)
    trained = None if config.model.weights is None else own_checkpoint(config.model.weights)
    if trained is not None:
        return _fine_tuned(config.model, *trained, len(data.classes))
    return build_model(
        config.model.name,
        len(data.classes),
        output_stride=config.model.output_stride,
        weights=config.model.weights,
        batch_norm=config.model.batch_norm,
        args=config.model.args,
    )
