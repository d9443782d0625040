"""The network that a run starts from: as its checkpoint has it, or fresh."""

from __future__ import annotations

from typing import Any

import torch

from losspool.segmentation.base import UserError
from losspool.segmentation.config import Config
from losspool.segmentation.data import ClassInfo, Dataset, check_classes
from losspool.segmentation.models import Model, ModelSpec, build_from_spec, build_model
from losspool.segmentation.runs import RunFolder, fitting


def stored_model(folder: RunFolder, config: Config, data: Dataset, stored: dict[str, Any]) -> Model:
    """Without its weights, which the trainer restores with the rest. An error if the run or its data are others now."""
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


def fresh_model(config: Config, data: Dataset) -> Model:
    """By the run's seed, with the weights that the config names."""
    torch.manual_seed(config.seed)
    return build_model(
        config.model.name,
        len(data.classes),
        output_stride=config.model.output_stride,
        weights=config.model.weights,
        frozen_bn=config.model.frozen_bn,
    )
