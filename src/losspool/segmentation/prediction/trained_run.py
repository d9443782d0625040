"""A trained run, ready to predict: what evaluation, prediction and export begin with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from losspool.segmentation.base import UserError
from losspool.segmentation.config import Config, EvaluateConfig, load_config
from losspool.segmentation.data import ClassInfo, existing_folder
from losspool.segmentation.models import Model, ModelSpec, build_from_spec, unet
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.runs import RunFolder, checkpoint_path, chosen_steps, fitting, read_checkpoint


@dataclass(frozen=True)
class Trained:
    """A network with its trained weights, and what it was trained on."""

    model: Model
    config: Config
    classes: tuple[ClassInfo, ...]
    step: int

    def predictor(self, settings: EvaluateConfig) -> Predictor:
        """The network behind a function from images to labels, on the accelerator if there is one."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        spec, module = self.model.spec, self.model.module.to(device)

        def network(images: Tensor) -> Any:
            return self.model.check_logits(module(images), images)

        zoom, stride = self.config.data.zoom, spec.output_stride
        return Predictor(network, spec.preprocessing, stride=stride, zoom=zoom, config=settings, device=device)


def run_folder(path: Path) -> RunFolder:
    """The folder of a run that exists."""
    return RunFolder(existing_folder(path, "the run's folder"))


def changed(settings: EvaluateConfig, *, tiling: str | None, scales: str | None, flip: bool | None) -> EvaluateConfig:
    """The run's settings, but for those that the command names."""
    wanted: dict[str, Any] = {"tiling": tiling, "flip": flip}
    if scales is not None:
        try:
            wanted["scales"] = tuple(float(text) for text in scales.split(","))
        except ValueError:
            raise UserError(f"scales are numbers such as 0.5,1.0,1.5, got {scales!r}") from None
    return replace(settings, **{name: value for name, value in wanted.items() if value is not None})


def load(folder: RunFolder, step: int, trusted_model: str | None = None) -> Trained:
    """The network of a checkpoint. A model by import path is code: it is built only if ``trusted_model`` names it."""
    path = checkpoint_path(folder.checkpoints, step)
    content = read_checkpoint(path)
    config = load_config(folder.config)
    with fitting(path, "its own model"):
        spec = ModelSpec.from_dict(content["spec"])
    if spec.by_path and spec.name not in (trusted_model, unet.BUILD):
        raise UserError(f"{path}: the model is code, {spec.name}; if you trust it, name it: --model {spec.name}")
    if spec.name != config.model.name or (not spec.by_path and spec.output_stride != config.model.output_stride):
        raise UserError(
            f"{path}: a checkpoint of another model: it is of {_model(spec.name, spec.output_stride)}, "
            f"the run of {_model(config.model.name, None if spec.by_path else config.model.output_stride)}"
        )
    with fitting(path, "its own model"):
        step, classes = int(content["step"]), tuple(map(ClassInfo.of, content["classes"]))
        if spec.num_classes != len(classes):
            raise ValueError(f"the model has {spec.num_classes} classes, the checkpoint names {len(classes)}")
        model = build_from_spec(spec)
        model.module.load_state_dict(content["model"])
    model.module.eval()
    return Trained(model, config, classes, step)


def load_one(folder: RunFolder, checkpoint: str, trusted_model: str | None = None) -> Trained:
    """The network of the one checkpoint that ``checkpoint`` names: last, best or a step."""
    steps = chosen_steps(folder, checkpoint)
    if len(steps) != 1:
        raise UserError(f"one checkpoint is needed, got {checkpoint!r}")
    return load(folder, steps[0], trusted_model)


def _model(name: str, output_stride: int | None) -> str:
    return name if output_stride is None else f"{name} with output stride {output_stride}"
