"""Loads a trained run for evaluation, prediction and export."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from losspool.segmentation.base import UserError, check_trusted
from losspool.segmentation.config import Config, EvaluateConfig, load_config
from losspool.segmentation.data import ClassInfo, Dataset, check_classes, existing_folder
from losspool.segmentation.models import UNET, Model, ModelSpec, build_from_spec
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.runs import (
    RunFolder,
    checkpoint_errors,
    checkpoint_path,
    checkpoint_weights,
    chosen_steps,
    read_checkpoint,
)


@dataclass(frozen=True)
class Trained:
    """A network with its trained weights, config and classes."""

    model: Model
    config: Config
    classes: tuple[ClassInfo, ...]
    step: int

    def predictor(self, settings: EvaluateConfig) -> Predictor:
        """A function that maps images to labels, on the GPU if there is one."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        spec, module = self.model.spec, self.model.module.to(device)

        def network(images: Tensor) -> Any:
            return self.model.check_logits(module(images), images)

        zoom, stride = self.config.data.zoom, spec.logit_stride
        return Predictor(network, spec.preprocessing, stride=stride, zoom=zoom, config=settings, device=device)


@dataclass(frozen=True)
class TrainedRun:
    """A run's folder and config. Runs may be untrusted: code of other packages must be trusted by name."""

    folder: RunFolder
    config: Config
    trusted: Collection[str] = ()
    """Import paths of networks, datasets and losses that the user trusts."""

    @classmethod
    def open(cls, path: Path, trusted: Collection[str] = ()) -> TrainedRun:
        """Open the run in an existing folder."""
        folder = RunFolder(existing_folder(path, "the run's folder"))
        if not folder.config.is_file():
            raise UserError(f"{path}: not the folder of a run (it has no config.yaml)")
        return cls(folder, load_config(folder.config), trusted)

    def steps(self, wanted: str) -> list[int]:
        """Parse ``last``, ``best`` or steps such as ``500,1000``; see :func:`chosen_steps`."""
        return chosen_steps(self.folder, wanted)

    def split(self, wanted: str | None) -> str:
        """The named split, or else the run's validation split."""
        if wanted is None and self.config.data.val is None:
            raise UserError(f"{self.folder.path}: the run has no validation split (data.val is null); pass --split")
        return wanted or str(self.config.data.val)

    def dataset(self, split: str, classes: tuple[ClassInfo, ...] | None = None) -> Dataset:
        """Open a split of the run's data. Raises ``UserError`` if its classes differ from the network's ``classes``."""
        check_trusted(self.folder.config, "dataset", self.config.data.name, self.trusted)
        dataset = self.config.data.open(split)
        if classes is not None:
            check_classes(classes, dataset)
        return dataset

    def load(self, step: int) -> Trained:
        """Load the network of a checkpoint."""
        path, config = checkpoint_path(self.folder.checkpoints, step), self.config
        content = read_checkpoint(path)
        with checkpoint_errors(path, "its own model"):
            spec = ModelSpec.from_dict(content["spec"])
        check_trusted(path, "model", spec.name, (*self.trusted, UNET))
        stride = config.model.output_stride if spec.built_in else spec.output_stride
        if (spec.name, spec.output_stride) != (config.model.name, stride):
            raise UserError(
                f"{path}: a checkpoint of another model: it holds {_model(spec.name, spec.output_stride)}, "
                f"the run uses {_model(config.model.name, stride)}"
            )
        with checkpoint_errors(path, "its own model"):
            step, classes = int(content["step"]), tuple(map(ClassInfo.of, content["classes"]))
            if spec.num_classes != len(classes):
                raise ValueError(f"the model has {spec.num_classes} classes, the checkpoint names {len(classes)}")
            model = build_from_spec(spec)
            model.module.load_state_dict(checkpoint_weights(content))
        model.module.eval()
        return Trained(model, config, classes, step)

    def load_one(self, checkpoint: str) -> Trained:
        """Load the network of one checkpoint: ``last``, ``best`` or a step."""
        steps = self.steps(checkpoint)
        if len(steps) != 1:
            raise UserError(f"checkpoint must be a single one, got {checkpoint!r}")
        return self.load(steps[0])


def with_overrides(
    settings: EvaluateConfig, *, tiling: str | None = None, scales: str | None = None, flip: bool | None = None
) -> EvaluateConfig:
    """The run's settings, overridden by the command's options."""
    wanted: dict[str, Any] = {"tiling": tiling, "flip": flip}
    if scales is not None:
        try:
            wanted["scales"] = tuple(float(text) for text in scales.split(","))
        except ValueError:
            raise UserError(f"scales are numbers such as 0.5,1.0,1.5, got {scales!r}") from None
    return replace(settings, **{name: value for name, value in wanted.items() if value is not None})


def _model(name: str, output_stride: int | None) -> str:
    return name if output_stride is None else f"{name} with output stride {output_stride}"
