"""What the backbones share: how a stride becomes a dilation, and how fresh weights are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from torch import nn

Variant = Literal["torchvision", "caffe"]
"""Where a network's strides and dilations sit; see :mod:`losspool.segmentation.models.resnet`."""


class Backbone(nn.Module):
    """A network from images (B, 3, H, W) to features (B, ``out_channels``, h, w), h ≈ H / ``output_stride``."""

    out_channels: int
    output_stride: int
    variant: Variant
    classifier: tuple[str, ...]
    """How the keys of the classifier begin in torchvision's files. It is no part of the backbone."""


class Atrous(NamedTuple):
    """How a block with a stride is run: with the stride, or without it and dilated."""

    stride: int
    at: int
    """Dilation of the convolution that has the stride, or had it."""

    behind: int
    """Dilation of every convolution after it."""

    def after(self) -> Atrous:
        """For the blocks of the same stage that follow."""
        return Atrous(1, self.behind, self.behind)


def atrous(strides: Sequence[int], stem: int, output_stride: int) -> Iterator[Atrous]:
    """Strides beyond ``output_stride`` traded for dilation, one entry for each of ``strides``.

    Every convolution behind a removed stride is dilated by it. Then the network computes what the
    strided one computes, at more positions: those that the strided one visits come out the same.
    This is also why the convolution that had the stride keeps the dilation from before.
    """
    total, dilation = stem, 1
    for stride in strides:
        before = dilation
        if total * stride > output_stride:
            dilation *= stride
            yield Atrous(1, before, dilation)
        else:
            total *= stride
            yield Atrous(stride, before, dilation)


def check_backbone(what: str, output_stride: int, variant: str, variants: Sequence[str]) -> None:
    if output_stride not in (8, 16, 32):
        raise ValueError(f"{what} has an output stride of 8, 16 or 32, got {output_stride!r}")
    if variant not in variants:
        raise ValueError(f"{what} has the variants {', '.join(variants)}, got {variant!r}")


def draw_weights(module: nn.Module) -> None:
    """As torchvision draws them: He's initialisation by the number of outputs."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
