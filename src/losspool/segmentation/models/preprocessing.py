"""Convert uint8 images to network input. The weights determine the preprocessing; the checkpoint stores it."""

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
    """Compute ``(scale · x − mean) / std`` per channel, in the channel order of the network."""

    mean: Triple
    """Mean of the scaled channels, in the network's channel order: blue first if ``bgr``."""

    std: Triple = (1.0, 1.0, 1.0)
    """Standard deviation, also in the network's channel order."""

    scale: float = 1.0
    """1/255 for networks that expect [0, 1], 1 for networks that expect [0, 255]."""

    bgr: bool = False
    """Whether the network expects BGR. Images are always RGB."""

    def apply(self, images: Tensor) -> Tensor:
        """Convert uint8 RGB images, (B, H, W, 3) or (B, 3, H, W), to float32 input (B, 3, H, W)."""
        x = _channels_first(images)
        x = (x.flip(1) if self.bgr else x).to(torch.float32, memory_format=torch.contiguous_format)
        factor = _per_channel(x, [self.scale / std for std in self.std])
        offset = _per_channel(x, [mean / std for mean, std in zip(self.mean, self.std, strict=True)])
        return x.mul_(factor).sub_(offset)  # in place: whole images are large

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        return {"mean": list(self.mean), "std": list(self.std), "scale": self.scale, "bgr": self.bgr}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Preprocessing:
        """Build from the output of :meth:`to_dict`."""
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, Mapping) or not {"mean"} <= set(stored) <= names:
            raise UserError(f"preprocessing must have the fields {', '.join(sorted(names))}, got {stored!r}")
        std = _triple("std", stored.get("std", (1.0, 1.0, 1.0)))
        scale, bgr = stored.get("scale", 1.0), stored.get("bgr", False)
        if not _is_number(scale) or not isinstance(bgr, bool) or 0.0 in std:
            raise UserError(f"preprocessing needs a number for scale, a bool for bgr and a nonzero std, got {stored!r}")
        return cls(_triple("mean", stored["mean"]), std, float(scale), bgr)


IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)
"""RGB in [0, 1], normalised by ImageNet's mean and standard deviation; for torchvision's weights."""

CAFFE = Preprocessing(mean=(104.008, 116.669, 122.675), bgr=True)
"""BGR in [0, 255] with the mean subtracted; for the original DeepLabV2 weights."""


def _channels_first(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        raise TypeError(f"images must have dtype torch.uint8, got {images.dtype}")
    last, first = images.ndim == 4 and images.shape[3] == 3, images.ndim == 4 and images.shape[1] == 3
    if last and first:
        raise ValueError(f"images of shape {tuple(images.shape)} are ambiguous: both (B, H, W, 3) and (B, 3, H, W) fit")
    if not last and not first:
        raise ValueError(f"images must have shape (B, H, W, 3) or (B, 3, H, W), got {tuple(images.shape)}")
    return images.permute(0, 3, 1, 2) if last else images


def _per_channel(images: Tensor, values: list[float]) -> Tensor:
    """(1, 3, 1, 1), filled on the device of the images: a copy from the host would wait for it."""
    return torch.cat([images.new_full((1, 1, 1, 1), value) for value in values], 1)


def _triple(name: str, values: Any) -> Triple:
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(_is_number, values)):
        raise UserError(f"preprocessing needs three numbers for {name}, got {values!r}")
    red, green, blue = map(float, values)
    return red, green, blue


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
