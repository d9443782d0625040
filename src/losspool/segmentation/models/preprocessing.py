"""From an image's bytes to what a network was trained on. The weights choose it; the checkpoint keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from losspool.segmentation.base import UserError

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """``(scale · x − mean) / std`` for every channel, in the order in which the network reads the channels."""

    mean: Triple
    """Of the scaled channels, in the network's order: blue first where ``bgr``."""

    std: Triple = (1.0, 1.0, 1.0)
    """In the network's order too."""

    scale: float = 1.0
    """1/255 for networks that read [0, 1], 1 for those that read [0, 255]."""

    bgr: bool = False
    """Whether the network reads blue, green, red. Images are always RGB."""

    def apply(self, images: Tensor) -> Tensor:
        """uint8 RGB images, (B, H, W, 3) or (B, 3, H, W), as a network's float32 input (B, 3, H, W)."""
        x = _channels_first(images)
        x = (x.flip(1) if self.bgr else x).to(torch.float32, memory_format=torch.contiguous_format)
        factor = x.new_tensor([self.scale / std for std in self.std]).view(1, 3, 1, 1)
        offset = x.new_tensor([mean / std for mean, std in zip(self.mean, self.std, strict=True)]).view(1, 3, 1, 1)
        return x.mul_(factor).sub_(offset)  # in place: whole images are large

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"mean": list(self.mean), "std": list(self.std), "scale": self.scale, "bgr": self.bgr}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_dict`."""
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, Mapping) or not {"mean"} <= set(stored) <= names:
            raise UserError(f"a preprocessing has the fields {', '.join(sorted(names))}, got {stored!r}")
        std = _triple("std", stored.get("std", (1.0, 1.0, 1.0)))
        scale, bgr = stored.get("scale", 1.0), stored.get("bgr", False)
        if not _is_number(scale) or not isinstance(bgr, bool) or 0.0 in std:
            raise UserError(f"a preprocessing needs a number as scale, a bool as bgr and no std of 0, got {stored!r}")
        return cls(_triple("mean", stored["mean"]), std, float(scale), bgr)


IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)
"""RGB in [0, 1], normalised by ImageNet's mean and deviation: what torchvision's weights read."""

CAFFE = Preprocessing(mean=(104.008, 116.669, 122.675), bgr=True)
"""BGR in [0, 255] less the mean: what the original DeepLabV2 weights read."""


def _channels_first(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        raise TypeError(f"images must be of dtype torch.uint8, got {images.dtype}")
    last, first = images.ndim == 4 and images.shape[3] == 3, images.ndim == 4 and images.shape[1] == 3
    if last and first:
        raise ValueError(f"images of shape {tuple(images.shape)} can be read as (B, H, W, 3) and as (B, 3, H, W)")
    if not last and not first:
        raise ValueError(f"images must be of shape (B, H, W, 3) or (B, 3, H, W), got {tuple(images.shape)}")
    return images.permute(0, 3, 1, 2) if last else images


def _triple(name: str, values: Any) -> Triple:
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(_is_number, values)):
        raise UserError(f"a preprocessing needs three numbers as {name}, got {values!r}")
    red, green, blue = map(float, values)
    return red, green, blue


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
