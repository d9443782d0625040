"""The tables of networks, and a network's description in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple, get_args

from losspool.segmentation.base import UserError, did_you_mean, is_import_path
from losspool.segmentation.models.backbone import Backbone, Variant
from losspool.segmentation.models.deeplab import DeepLabV2
from losspool.segmentation.models.deeplabv3plus import DeepLabV3Plus
from losspool.segmentation.models.fpn import FPN
from losspool.segmentation.models.mobilenet import MobileNetV2
from losspool.segmentation.models.network import Network
from losspool.segmentation.models.packages import PACKAGES, is_package_name
from losspool.segmentation.models.preprocessing import Preprocessing
from losspool.segmentation.models.resnet import ResNet


class BackboneKind(NamedTuple):
    """An entry of the table of backbones."""

    build: Callable[[int, Variant], Backbone]
    """Takes the output stride and the variant."""
    variants: tuple[Variant, ...] = get_args(Variant)


HEADS: dict[str, type[Network]] = {"deeplabv2": DeepLabV2, "deeplabv3plus": DeepLabV3Plus, "fpn": FPN}
BACKBONES = {
    "resnet101": BackboneKind(partial(ResNet, 101)),
    "resnet50": BackboneKind(partial(ResNet, 50)),
    "resnet18": BackboneKind(partial(ResNet, 18)),
    "mobilenetv2": BackboneKind(MobileNetV2, ("torchvision",)),
}
MODELS = {f"{head}_{name}": (HEADS[head], backbone) for head in HEADS for name, backbone in BACKBONES.items()}
"""The built-in networks: every head on every backbone."""


def default_output_stride(name: str) -> int | None:
    """The output stride that a built-in network has unless another is named; None for other networks."""
    return MODELS[name][0].output_strides[0] if name in MODELS else None


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to rebuild a model's module, except its weights. Checkpoints store it as JSON."""

    name: str
    """A key of ``MODELS``, an import path, or a network of another package such as ``smp:Unet``."""

    num_classes: int

    output_stride: int | None
    """The backbone's output stride. For another package's network, the stride of its logits; None if unknown."""

    variant: Variant | None
    """None unless the network is built in."""

    preprocessing: Preprocessing

    frozen_bn: bool
    """Whether the BatchNorm layers are frozen."""

    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of a network that is not built in."""

    @property
    def by_path(self) -> bool:
        """Whether the name is an import path."""
        return is_import_path(self.name)

    @property
    def built_in(self) -> bool:
        """Whether the name is a key of ``MODELS``."""
        return self.name in MODELS

    @property
    def logit_stride(self) -> int | None:
        """Pixels per cell of the logits; None if unknown, then the logits are taken to span the whole image."""
        fixed = MODELS[self.name][0].logit_stride if self.built_in else None
        return self.output_stride if fixed is None else fixed

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UserError(f"the model name must be a string, got {self.name!r}")
        if isinstance(self.num_classes, bool) or not isinstance(self.num_classes, int) or self.num_classes < 1:
            raise UserError(f"the number of classes must be an integer of at least 1, got {self.num_classes!r}")
        if not isinstance(self.frozen_bn, bool):
            raise UserError(f"frozen_bn must be true or false, got {self.frozen_bn!r}")
        if not self.built_in and not self.by_path and not is_package_name(self.name):
            prefix, colon, _ = self.name.partition(":")
            if colon and prefix in PACKAGES:
                raise UserError(f"model {self.name!r}: {prefix}: needs the name of a network, as in smp:Unet")
            near = did_you_mean(self.name, MODELS, 0.0)
            raise UserError(
                f"unknown model {self.name!r}, {near} Choose from {', '.join(MODELS)}, an import "
                f"path such as mypackage.build, or a network of {', '.join(PACKAGES)} such as smp:Unet"
            )
        if self.built_in:
            head, backbone = MODELS[self.name]
            self._check("output stride", self.output_stride, tuple(sorted(head.output_strides)))
            self._check("variant", self.variant, backbone.variants)
        else:
            found = is_package_name(self.name) and isinstance(self.output_stride, int) and self.output_stride >= 1
            self._check("output stride", self.output_stride, (self.output_stride,) if found else (None,))
            self._check("variant", self.variant, (None,))
        if not isinstance(self.args, Mapping) or not all(isinstance(name, str) for name in self.args):
            raise UserError(f"{self.name}: the arguments must be values by name, got {self.args!r}")
        if self.built_in and self.args:
            raise UserError(f"{self.name}: a built-in model takes no model.args, got {dict(self.args)!r}")

    def _check(self, what: str, value: object, choices: tuple[object, ...]) -> None:
        if value not in choices:
            raise UserError(f"{self.name}: the {what} must be {' or '.join(map(repr, choices))}, got {value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict. Without arguments it is what earlier versions wrote and read."""
        stored = asdict(self) | {"preprocessing": self.preprocessing.to_dict()}
        return stored if self.args else {name: value for name, value in stored.items() if name != "args"}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ModelSpec:
        """Build from the output of :meth:`to_dict`."""
        names = {each.name for each in fields(cls)}
        if not isinstance(stored, Mapping) or set(stored) | {"args"} != names:
            raise UserError(f"a model spec must have the fields {', '.join(sorted(names))}, got {stored!r}")
        return cls(**{**stored, "preprocessing": Preprocessing.from_dict(stored["preprocessing"])})
