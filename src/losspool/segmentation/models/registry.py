"""Build models by name, or by import path for custom models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from losspool.segmentation.base import UserError, import_by_path, is_import_path
from losspool.segmentation.models.backbone import Backbone, Variant
from losspool.segmentation.models.batch_norm import freeze_batch_norm
from losspool.segmentation.models.deeplab import RATES, DeepLabV2
from losspool.segmentation.models.mobilenet import MobileNetV2
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET, Preprocessing
from losspool.segmentation.models.resnet import ResNet
from losspool.segmentation.models.weights import (
    Layout,
    LoadReport,
    load_backbone,
    load_deeplab_pytorch,
    load_strictly,
    read_weights,
    recognise,
)

MODELS: dict[str, Callable[[int, Variant], Backbone]] = {
    "deeplabv2_resnet101": lambda stride, variant: ResNet(101, stride, variant),
    "deeplabv2_resnet50": lambda stride, variant: ResNet(50, stride, variant),
    "deeplabv2_resnet18": lambda stride, variant: ResNet(18, stride, variant),
    "deeplabv2_mobilenetv2": MobileNetV2,
}
"""Backbone builders of the named models. Each takes the output stride and the variant."""


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to rebuild a model's module, except its weights. Checkpoints store it as JSON."""

    name: str
    """A key of ``MODELS``, or an import path."""

    num_classes: int

    output_stride: int | None
    """8 or 16; None for custom models, whose stride is unknown."""

    variant: Variant | None
    """None for custom models."""

    preprocessing: Preprocessing

    frozen_bn: bool
    """Whether the BatchNorm layers are frozen."""

    @property
    def by_path(self) -> bool:
        """Whether the name is an import path."""
        return is_import_path(self.name)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UserError(f"the model name must be a string, got {self.name!r}")
        if isinstance(self.num_classes, bool) or not isinstance(self.num_classes, int) or self.num_classes < 1:
            raise UserError(f"the number of classes must be an integer of at least 1, got {self.num_classes!r}")
        if not isinstance(self.frozen_bn, bool):
            raise UserError(f"frozen_bn must be true or false, got {self.frozen_bn!r}")
        if not self.by_path and self.name not in MODELS:
            near = difflib.get_close_matches(self.name, MODELS, n=1, cutoff=0.0)[0]
            raise UserError(
                f"there is no model {self.name!r}, did you mean {near!r}? Use one of {', '.join(MODELS)}, "
                f"or an import path such as mypackage.build"
            )
        variants = ("torchvision",) if self.name == "deeplabv2_mobilenetv2" else get_args(Variant)
        self._check("output stride", self.output_stride, tuple(RATES))
        self._check("variant", self.variant, variants)

    def _check(self, what: str, value: object, choices: tuple[object, ...]) -> None:
        choices = (None,) if self.by_path else choices
        if value not in choices:
            raise UserError(f"{self.name}: the {what} must be {' or '.join(map(repr, choices))}, got {value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        return asdict(self) | {"preprocessing": self.preprocessing.to_dict()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ModelSpec:
        """Build from the output of :meth:`to_dict`."""
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, Mapping) or set(stored) != names:
            raise UserError(f"a model spec must have the fields {', '.join(sorted(names))}, got {stored!r}")
        return cls(**{**stored, "preprocessing": Preprocessing.from_dict(stored["preprocessing"])})


_CHOICES: dict[Layout, tuple[Variant, Preprocessing]] = {
    "torchvision": ("torchvision", IMAGENET),
    "deeplab-pytorch": ("caffe", CAFFE),
}


@dataclass(frozen=True)
class Model:
    """A module that returns coarse logits, its spec, and the report of its weights."""

    module: nn.Module
    spec: ModelSpec
    report: LoadReport | None = None
    """What was loaded from a weights file; None without one."""

    def parameter_groups(self, lr: float, head_factor: float = 10.0) -> list[dict[str, Any]]:
        """Return optimiser parameter groups, with the head at ``head_factor`` times the learning rate.

        A custom model is split by its methods ``backbone_parameters`` and ``head_parameters``. Without
        them it forms a single group at the plain rate.
        """
        trainable = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not trainable:
            raise UserError(f"{self.spec.name}: the model has no trainable parameter")
        parts = [getattr(self.module, f"{part}_parameters", None) for part in ("backbone", "head")]
        if not all(map(callable, parts)):
            return [{"params": trainable, "lr": lr, "name": "all"}]
        backbone, head = ([parameter for parameter in part() if parameter.requires_grad] for part in parts if part)
        if sorted(map(id, [*backbone, *head])) != sorted(map(id, trainable)):
            raise UserError(
                f"{self.spec.name}: backbone_parameters() and head_parameters() must yield every trainable parameter "
                f"once, got {len(backbone)} and {len(head)} of {len(trainable)}"
            )
        groups = [("backbone", backbone, lr), ("head", head, lr * head_factor)]
        return [{"params": params, "lr": rate, "name": name} for name, params, rate in groups if params]

    def dry_run(self, height: int, width: int, batch: int) -> None:
        """Run the model on black images, so that a faulty custom model fails here and not during training."""
        images = torch.zeros(1, 3, height, width)
        training = self.module.training
        logits = self._forward(self.module.eval(), images)
        self.check_logits(logits, images)
        self.module.train(training)
        if batch == 1:  # BatchNorm fails on a single value per channel: one image, one cell
            before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
            self._forward(self.module.train(), images)
            for name, buffer in self.module.named_buffers():
                buffer.copy_(before[name])
            self.module.train(training)

    def _forward(self, module: nn.Module, images: Tensor) -> object:
        try:
            with torch.no_grad():
                return module(images)
        except Exception as error:  # a user's module may raise anything
            message = str(error).splitlines()[0] if str(error) else ""
            shape = "×".join(map(str, images.shape))
            name = self.spec.name
            raise UserError(
                f"{name}: the model raised {type(error).__name__} for crops of {shape}: {message}"
            ) from error

    def check_logits(self, logits: object, images: Tensor) -> Tensor:
        """Return ``logits`` if their type and shape fit ``images`` (B, 3, H, W); custom models may get this wrong."""
        expected = f"logits (B, {self.spec.num_classes}, h, w), no larger than the image"
        if not isinstance(logits, Tensor):
            raise UserError(f"{self.spec.name}: the model must return {expected}, got {type(logits).__name__}")
        batch, _, height, width = images.shape
        shape = tuple(logits.shape)
        fits = len(shape) == 4 and shape[:2] == (batch, self.spec.num_classes)
        if not fits or not (1 <= shape[2] <= height and 1 <= shape[3] <= width):
            raise UserError(
                f"{self.spec.name}: the model must return {expected}, got {shape} for {tuple(images.shape)}"
            )
        return logits


def build_model(
    name: str,
    num_classes: int,
    *,
    output_stride: int = 8,
    weights: str | Path | None = None,
    variant: Variant | None = None,
    frozen_bn: bool | None = None,
) -> Model:
    """Build a model with random or pretrained weights.

    Args:
        name: a key of ``MODELS``, or the import path of a callable that takes the number of classes
            and returns an ``nn.Module`` that maps (B, 3, H, W) to logits (B, C, h, w). The module's
            attribute ``preprocessing`` is used if present, else ImageNet's preprocessing.
        num_classes: number of classes C.
        output_stride: 8 or 16. Ignored for custom models.
        weights: a file in torchvision's layout, or in deeplab-pytorch's for ResNet-101. It determines
            the variant and the preprocessing. For custom models, a state dict of the module.
        variant: variant for models without weights (default: ``"torchvision"``).
        frozen_bn: whether to freeze BatchNorm (default: only with weights).
    """
    frozen_bn = weights is not None if frozen_bn is None else frozen_bn
    if is_import_path(name):
        return _build_by_path(ModelSpec(name, num_classes, None, variant, IMAGENET, frozen_bn), weights)
    spec = ModelSpec(name, num_classes, output_stride, variant or "torchvision", IMAGENET, frozen_bn)
    if weights is None:
        return build_from_spec(spec)
    state = read_weights(weights)
    layout = recognise(state, weights)
    chosen, preprocessing = _CHOICES[layout]
    if variant not in (None, chosen):
        raise UserError(f"{weights}: weights in {layout}'s layout belong to variant {chosen!r}, got {variant!r}")
    if layout == "deeplab-pytorch" and name != "deeplabv2_resnet101":
        raise UserError(f"{weights}: deeplab-pytorch's weights are for deeplabv2_resnet101, got {name}")
    model = build_from_spec(replace(spec, variant=chosen, preprocessing=preprocessing))
    assert isinstance(model.module, DeepLabV2)
    load = load_backbone if layout == "torchvision" else load_deeplab_pytorch
    return replace(model, report=load(model.module, state, weights))


def build_from_spec(spec: ModelSpec) -> Model:
    """Build a randomly initialised module that a checkpoint's weights fit."""
    if spec.output_stride is None or spec.variant is None:
        module = _build_custom(spec.name, spec.num_classes)
    else:
        module = DeepLabV2(MODELS[spec.name](spec.output_stride, spec.variant), spec.num_classes)
    if spec.frozen_bn:
        freeze_batch_norm(module)
    return Model(module, spec)


def _build_by_path(spec: ModelSpec, weights: str | Path | None) -> Model:
    model = build_from_spec(spec)
    preprocessing = getattr(model.module, "preprocessing", spec.preprocessing)
    if not isinstance(preprocessing, Preprocessing):
        preprocessing = Preprocessing.from_dict(preprocessing)
    report = None
    if weights is not None:
        state = read_weights(weights)
        load_strictly(model.module, state, weights)
        report = LoadReport(str(weights), "the model's own", len(state))
    return Model(model.module, replace(spec, preprocessing=preprocessing), report)


def _build_custom(path: str, num_classes: int) -> nn.Module:
    """Call the builder at an import path with the number of classes, and check its result."""
    build = import_by_path(path, "model")
    if not callable(build):
        raise UserError(f"model {path!r} must be callable with the number of classes, got {type(build).__name__}")
    try:
        module = build(num_classes)
    except Exception as error:
        raise UserError(f"model {path!r} called with {num_classes} raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"model {path!r} must return a torch.nn.Module, got {type(module).__name__}")
    return module
