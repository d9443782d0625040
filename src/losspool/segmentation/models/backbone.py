"""Code shared by the backbones: trading strides for dilation, and weight initialisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from torch import Tensor, nn

Variant = Literal["torchvision", "caffe"]
"""Which layers carry the strides and dilations; see :mod:`losspool.segmentation.models.resnet`."""


class Backbone(nn.Module):
    """Maps images (B, 3, H, W) to features (B, ``out_channels``, h, w), with h ≈ H / ``output_stride``."""

    channels: tuple[int, int, int, int]
    """Channels of the four levels."""
    output_stride: int
    variant: Variant
    classifier: tuple[str, ...]
    """Key prefixes of the classifier in torchvision's files. The backbone does not include it."""

    @property
    def out_channels(self) -> int:
        return self.channels[-1]

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the four levels."""
        return tuple(min(stride, self.output_stride) for stride in (4, 8, 16, 32))

    def stages(self) -> list[list[nn.Module]]:
        """Return the layers, in order, cut behind the last layer of each level."""
        raise NotImplementedError

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the features at strides 4, 8, 16 and 32; dilation keeps the last ones at ``output_stride``."""
        found = []
        for stage in self.stages():
            for layer in stage:
                x = layer(x)
            found.append(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        # Not through levels(), which keeps every level in memory.
        for stage in self.stages():
            for layer in stage:
                x = layer(x)
        return x


class Atrous(NamedTuple):
    """How to run a block that has a stride: strided, or dilated instead."""

    stride: int
    at: int
    """Dilation of the convolution that has, or had, the stride."""

    behind: int
    """Dilation of every convolution after it."""

    def after(self) -> Atrous:
        """Return the setting for the following blocks of the stage."""
        return Atrous(1, self.behind, self.behind)


def atrous(strides: Sequence[int], stem: int, output_stride: int) -> Iterator[Atrous]:
    """Trade strides beyond ``output_stride`` for dilation; yield one entry per stride.

    Every convolution after a removed stride is dilated by it. The dilated network then computes the
    same features as the strided one, at more positions: at the positions of the strided network the
    results are equal. For the same reason the convolution that had the stride keeps its previous
    dilation.
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
        raise ValueError(f"{what}: the output stride must be 8, 16 or 32, got {output_stride!r}")
    if variant not in variants:
        raise ValueError(f"{what}: the variant must be {' or '.join(variants)}, got {variant!r}")


def draw_weights(module: nn.Module) -> None:
    """Initialise convolutions as torchvision does: He initialisation with ``fan_out``."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
