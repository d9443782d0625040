"""A small U-Net that trains from scratch in minutes; also an example of a custom model."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BUILD = "losspool.segmentation.models.unet.build"
"""Model name of the U-Net: the only import path that any checkpoint may name."""
WIDTHS = (16, 24, 40, 64, 96)
"""Channels at 1/2, 1/4, … of the image size."""


def build(num_classes: int) -> nn.Module:
    """Build a U-Net whose logits have half the image size."""
    return UNet(num_classes)


class UNet(nn.Module):
    """Strided encoder, bilinear decoder, and skip connections at each level (Ronneberger et al., 2015)."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        inputs = (3, *WIDTHS[:-1])
        self.down = nn.ModuleList(
            nn.Sequential(_unit(before, width, stride=2), _unit(width, width))
            for before, width in zip(inputs, WIDTHS, strict=True)
        )
        self.up = nn.ModuleList(_unit(width + below, width) for width, below in pairwise(WIDTHS))
        self.head = nn.Conv2d(WIDTHS[0], num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for down in self.down:
            x = down(x)
            levels.append(x)
        for up, level in zip(reversed(self.up), reversed(levels[:-1]), strict=True):
            x = F.interpolate(x, level.shape[2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([level, x], dim=1))
        return cast(Tensor, self.head(x))


def _unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
