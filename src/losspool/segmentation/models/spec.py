"""The specification of a model, without its weights."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from losspool.segmentation.base import UserError, is_import_path
from losspool.segmentation.models.backbone import Backbone, Variant
from losspool.segmentation.models.deeplab import RATES
from losspool.segmentation.models.mobilenet import MobileNetV2
from losspool.segmentation.models.preprocessing import Preprocessing
from losspool.segmentation.models.resnet import ResNet

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
