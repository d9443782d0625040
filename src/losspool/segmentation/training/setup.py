"""Builds the parts of a run from its config: data, model, loss, optimizer and validation."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.distributed import ProcessGroup

from losspool.segmentation.base import BrokenFileError, UserError, say
from losspool.segmentation.config import Config, ModelConfig, TrainConfig
from losspool.segmentation.data import (
    ClassInfo,
    Dataset,
    HasReading,
    WarnOnce,
    check_classes,
    class_index,
    index_warnings,
)
from losspool.segmentation.losses import Criterion
from losspool.segmentation.models import Model, ModelSpec, build_fine_tuned, build_from_spec, build_model, synchronised
from losspool.segmentation.runs import (
    RunFolder,
    RunLock,
    check_trackers,
    checkpoint_errors,
    checkpoint_weights,
    own_checkpoint,
)
from losspool.segmentation.training.claim import check_same_data, claim_and_read
from losspool.segmentation.training.loader import check_prefetch
from losspool.segmentation.training.micro_batches import MicroBatches
from losspool.segmentation.training.optimization import AveragedWeights, build_optimizer
from losspool.segmentation.training.sampling import CropSampler
from losspool.segmentation.training.validation import Previews, Validation


@dataclass(frozen=True)
class Setup:
    """The parts of a run."""

    folder: RunFolder
    fabric: Fabric
    config: Config
    """With the range of intensities that was found."""
    split: MicroBatches
    data: Dataset
    sampler: CropSampler
    model: Model
    criterion: Criterion
    network: Any
    """The model's module, wrapped by Fabric."""
    optimizer: Any
    averaged: AveragedWeights
    validation: Validation | None
    """None without validation data."""
    warn: WarnOnce

    @property
    def notices(self) -> list[str]:
        """What the user should know before the first step, a sentence each."""
        found = [] if self.model.report is None else [str(self.model.report)]
        if self.config.model.batch_norm is None and (parts := self.model.frozen_as_initialised):
            found.append(
                "model.batch_norm is null, which with model.weights freezes BatchNorm: that of "
                f"{', '.join(parts)} stays as initialised; set model.batch_norm=train to train it"
            )
        if self.config.loss.label_smoothing and (without := self.criterion.without_pixel_losses):
            found.append(f"loss.label_smoothing acts on losses per pixel, so it has no effect on {', '.join(without)}")
        return found


def set_up(
    folder: RunFolder, config: Config, fabric: Fabric, hosts: ProcessGroup | None, lock: RunLock, resume: bool
) -> tuple[Setup, dict[str, Any] | None]:
    """Claim the folder of a run to resume, and build every part. Returns them with the checkpoint to restore."""
    split = MicroBatches.of(config.train, fabric.world_size)
    config, stored = claim_and_read(folder, config, fabric, hosts, lock, resume)
    check_prefetch(config.data.workers, config.sampling.lag)
    check_trackers(config.train.trackers)
    data = _training_data(config)
    if isinstance(data, HasReading) and data.reading != config.data.reading:
        config = replace(config, data=replace(config.data, intensity=data.reading.intensity))
    val_data = _validation_data(config)
    warn = WarnOnce(silent=fabric.global_rank != 0)
    broken = warn if config.data.skip_broken else None
    with fabric.rank_zero_first(local=True):  # one rank builds it, the others read the cache
        index = class_index(data, config.data.cache, broken)
    check_same_data(config, data, index, fabric)
    if fabric.global_rank == 0 and (found := index_warnings(data, index)):
        say(f"warning: {'; '.join(found)}")
    sampler = CropSampler(index, config.sampling, config.seed)
    model = _fresh_model(config, data) if stored is None else _stored_model(folder, config, data, stored)
    if not model.spec.built_in or split.size == 1:
        model.dry_run(*config.data.crop, split.size)
    if config.model.batch_norm == "sync":
        model = synchronised(model, fabric.device)
    criterion = Criterion(config.loss, index, model.spec.logit_stride, config.model.aux_weight).to(fabric.device)
    network, optimizer = _network_and_optimizer(model, config.train, fabric)
    validation = None
    if val_data is not None:
        count, resumed = config.train.previews, stored is not None
        previews = Previews(folder.previews, val_data, count, broken, resumed=resumed)
        validation = Validation(fabric, config, model, val_data, previews, index, warn)
    setup = Setup(
        folder=folder,
        fabric=fabric,
        config=config,
        split=split,
        data=data,
        sampler=sampler,
        model=model,
        criterion=criterion,
        network=network,
        optimizer=optimizer,
        averaged=AveragedWeights(model.module, config.train.ema),
        validation=validation,
        warn=warn,
    )
    return setup, stored


def _network_and_optimizer(model: Model, train: TrainConfig, fabric: Fabric) -> tuple[Any, Any]:
    module = model.module
    if train.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    optimizer = build_optimizer(model, train)
    network = cast(nn.Module, torch.compile(module)) if train.compile else module
    return cast(tuple[Any, Any], fabric.setup(network, optimizer))


def _stored_model(folder: RunFolder, config: Config, data: Dataset, stored: dict[str, Any]) -> Model:
    """Build the checkpoint's model. Raises ``UserError`` if the run or its data have changed."""
    with checkpoint_errors(folder.checkpoints, "the run"):
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
    with checkpoint_errors(path, "its own model"):
        spec, state = ModelSpec.from_dict(content["spec"]), checkpoint_weights(content)
    if spec.name != config.name:
        raise UserError(f"{path}: model.weights holds a {spec.name}, but model.name is {config.name}")
    return build_fine_tuned(
        spec, state, path, classes, output_stride=config.output_stride, batch_norm=config.batch_norm
    )


def _training_data(config: Config) -> Dataset:
    try:
        return config.data.open(config.data.train)
    except UserError as error:
        if config.data.root is None or os.path.exists(os.path.expanduser(config.data.root)):
            raise
        raise UserError(f"{error}; set data.root") from None


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
