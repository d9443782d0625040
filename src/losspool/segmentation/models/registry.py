"""Build models by name: built-in ones, other packages' ones, and custom ones by import path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from losspool.segmentation.base import UserError, import_by_path
from losspool.segmentation.models.backbone import Variant
from losspool.segmentation.models.batch_norm import BatchNormMode, FrozenBatchNorm, freeze_batch_norm
from losspool.segmentation.models.deeplab import DeepLabV2
from losspool.segmentation.models.network import Network
from losspool.segmentation.models.packages import (
    Adapted,
    TrainingOutput,
    build_package,
    called,
    described,
    is_package_name,
    unwrap_output,
)
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET, Preprocessing
from losspool.segmentation.models.spec import BACKBONES, MODELS, ModelSpec, default_output_stride
from losspool.segmentation.models.weights import (
    Layout,
    LoadReport,
    State,
    load_backbone,
    load_deeplab_pytorch,
    load_strictly,
    load_trained,
    read_weights,
    recognise,
)

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

    @property
    def frozen_as_initialised(self) -> tuple[str, ...]:
        """The parts that the weights file did not have, and whose BatchNorm is frozen nevertheless."""
        fresh = () if self.report is None else self.report.fresh
        return tuple(
            name
            for name, part in self.module.named_children()
            if name in fresh and any(isinstance(layer, FrozenBatchNorm) for layer in part.modules())
        )

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
        """Run the model on black images in both modes, so that a faulty custom model fails here and not later.

        Random numbers and buffers are then as before: a training does not depend on it.
        """
        training = self.module.training
        images = torch.zeros(1, 3, height, width)
        self.check_logits(self._forward(self.module.eval(), images), images)
        images = torch.zeros(min(batch, 2), 3, height, width)  # BatchNorm refuses a single value per channel
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        with torch.random.fork_rng(devices=[]):
            output = self._forward(self.module.train(), images)
        for name, value in before.items():
            if (buffer := self.module.get_buffer(name)).shape == value.shape:  # else a cache for this size
                buffer.copy_(value)
        self.module.train(training)
        logits, aux = output if isinstance(output, TrainingOutput) else (output, None)
        self.check_logits(logits, images, "the model in training mode")
        if aux is not None:
            self.check_logits(aux, images, "the auxiliary head")

    def _forward(self, module: nn.Module, images: Tensor) -> object:
        try:
            with torch.no_grad():
                return module(images)
        except Exception as error:  # a user's module may raise anything
            message = str(error).splitlines()[0] if str(error) else ""
            shape = "×".join(map(str, images.shape))
            mode = " in training mode" if module.training else ""
            raise UserError(
                f"{self.spec.name}: the model raised {type(error).__name__} for crops of {shape}{mode}: {message}"
            ) from error

    def check_logits(self, logits: object, images: Tensor, source: str = "the model") -> Tensor:
        """Return ``logits`` if their type and shape fit ``images`` (B, 3, H, W); custom models may get this wrong.

        ``source`` is what returned them, for messages.
        """
        expected = f"logits (B, {self.spec.num_classes}, h, w), no larger than the image"
        if not isinstance(logits, Tensor):
            raise UserError(f"{self.spec.name}: {source} must return {expected}, got {type(logits).__name__}")
        batch, _, height, width = images.shape
        shape = tuple(logits.shape)
        fits = len(shape) == 4 and shape[:2] == (batch, self.spec.num_classes)
        if not fits or not (1 <= shape[2] <= height and 1 <= shape[3] <= width):
            raise UserError(f"{self.spec.name}: {source} must return {expected}, got {shape} for {tuple(images.shape)}")
        return logits


def build_model(
    name: str,
    num_classes: int,
    *,
    output_stride: int | None = None,
    weights: str | Path | None = None,
    variant: Variant | None = None,
    batch_norm: BatchNormMode | None = None,
    args: Mapping[str, Any] | None = None,
) -> Model:
    """Build a model with random or pretrained weights.

    Args:
        name: a key of ``MODELS``; a network of another package such as ``smp:Unet``, see ``PACKAGES``; or the
            import path of a callable that takes the number of classes and returns an ``nn.Module`` that maps
            (B, 3, H, W) to logits (B, C, h, w). The module's attribute ``preprocessing`` is used if present, else
            ImageNet's preprocessing.
        num_classes: number of classes C.
        output_stride: of the backbone of a built-in model (default: 8 for DeepLabV2, 16 for DeepLabV3+, 32 for FPN).
        weights: a file in torchvision's layout, or in deeplab-pytorch's for DeepLabV2 on ResNet-101. It determines
            the variant and the preprocessing. For other models, a state dict of the module.
        variant: variant for built-in models without weights (default: ``"torchvision"``).
        batch_norm: ``"frozen"``, ``"train"``, or ``"sync"``, which builds the same as ``"train"``: see
            :func:`synchronised` (default: frozen only with weights).
        args: keyword arguments of a model that is not built in.
    """
    if batch_norm not in (None, *get_args(BatchNormMode)):
        raise UserError(f"batch_norm must be one of {', '.join(get_args(BatchNormMode))}, got {batch_norm!r}")
    frozen = weights is not None if batch_norm is None else batch_norm == "frozen"
    if name not in MODELS:
        return _build_other(ModelSpec(name, num_classes, None, variant, IMAGENET, frozen, dict(args or {})), weights)
    stride = default_output_stride(name) if output_stride is None else output_stride
    spec = ModelSpec(name, num_classes, stride, variant or "torchvision", IMAGENET, frozen, dict(args or {}))
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
    if layout == "torchvision":
        assert isinstance(model.module, Network)
        try:
            return replace(model, report=load_backbone(model.module, state, weights))
        except UserError as error:
            if (found := _backbone_of(state)) is None:
                raise
            raise UserError(f"{weights}: the file is of {found}, and {name} needs another backbone's") from error
    assert isinstance(model.module, DeepLabV2)
    return replace(model, report=load_deeplab_pytorch(model.module, state, weights))


def _backbone_of(state: State) -> str | None:
    """The backbone of a file in torchvision's layout, by the keys and shapes; None if it is no known one's."""
    for name, kind in BACKBONES.items():
        with torch.device("meta"):
            backbone = kind.build(32, "torchvision")
        wanted, found = (
            {key: value.shape for key, value in each.items() if not key.startswith(backbone.classifier)}
            for each in (backbone.state_dict(), state)
        )
        if wanted == {**{key: wanted[key] for key in wanted if key.endswith("num_batches_tracked")}, **found}:
            return name  # files from before torch 0.4.1 lack these counters
    return None


def build_fine_tuned(
    trained: ModelSpec,
    state: State,
    path: str | Path,
    num_classes: int,
    *,
    output_stride: int | None = None,
    batch_norm: BatchNormMode | None = None,
) -> Model:
    """Build the network of a checkpoint for ``num_classes`` classes, with the checkpoint's weights.

    Preprocessing is the checkpoint's, and so is BatchNorm unless ``batch_norm`` says otherwise.
    """
    spec = replace(
        trained,
        num_classes=num_classes,
        output_stride=output_stride if trained.built_in else trained.output_stride,
        frozen_bn=trained.frozen_bn if batch_norm is None else batch_norm == "frozen",
    )
    model = build_from_spec(spec)
    return replace(model, report=load_trained(model.module, state, path, trained.num_classes, num_classes))


def build_from_spec(spec: ModelSpec) -> Model:
    """Build a randomly initialised module that a checkpoint's weights fit."""
    if spec.built_in:
        assert spec.output_stride is not None
        assert spec.variant is not None
        head, backbone = MODELS[spec.name]
        return _frozen(head(backbone.build(spec.output_stride, spec.variant), spec.num_classes), spec)
    if is_package_name(spec.name):
        return _frozen(build_package(spec.name, spec.num_classes, spec.args)[0], spec)
    return _frozen(_build_custom(spec), spec)


def _build_other(spec: ModelSpec, weights: str | Path | None) -> Model:
    """Build a model that is not built in, and complete its spec."""
    report = None
    if is_package_name(spec.name):
        module, built = build_package(spec.name, spec.num_classes, spec.args, new=True)
        spec, report = replace(spec, output_stride=module.stride, args=built.args), built.report
        model = _frozen(module, spec)
    else:
        model = build_from_spec(spec)
        preprocessing = getattr(model.module, "preprocessing", spec.preprocessing)
        if not isinstance(preprocessing, Preprocessing):
            preprocessing = Preprocessing.from_dict(preprocessing)
        spec = replace(spec, preprocessing=preprocessing)
    if weights is not None:
        state = read_weights(weights)
        load_strictly(model.module.network if isinstance(model.module, Adapted) else model.module, state, weights)
        report = LoadReport(str(weights), "the model's own", len(state))
    return Model(model.module, spec, report)


def synchronised(model: Model, device: torch.device) -> Model:
    """A model whose BatchNorm takes its statistics over all processes: torch's SyncBatchNorm, for training on GPUs.

    Parameters, buffers and their names stay. The spec does not say it, so that predicting needs no GPU.
    """
    if device.type == "cpu":
        raise UserError("model.batch_norm=sync needs GPUs, and torch finds none; on the CPU, use train or frozen")
    return replace(model, module=nn.SyncBatchNorm.convert_sync_batchnorm(model.module))


def _frozen(module: nn.Module, spec: ModelSpec) -> Model:
    """A model whose BatchNorm is frozen if its spec says so."""
    if spec.frozen_bn:
        freeze_batch_norm(module)
    return Model(module, spec)


def _build_custom(spec: ModelSpec) -> nn.Module:
    """Call the builder at an import path with the number of classes and the arguments, and check its result."""
    path, classes = spec.name, spec.num_classes
    build = import_by_path(path, "model")
    if not callable(build):
        raise UserError(f"model {path!r} must be callable with the number of classes, got {type(build).__name__}")
    try:
        module = build(classes, **spec.args)
    except Exception as error:
        raise UserError(f"model {path!r} {called(classes, spec.args)} raised {described(error)}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"model {path!r} must return a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(module, torch.jit.ScriptModule):  # it returns tensors, and takes no hooks
        module.register_forward_hook(unwrap_output)
    return module
