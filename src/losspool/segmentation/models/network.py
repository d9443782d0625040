"""What every built-in network shares: a backbone and a head, and how coarse logits cover an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from losspool.ops import interpolated
from losspool.segmentation.models.backbone import Backbone

ALIGN_CORNERS = False
"""``align_corners`` for upsampling coarse logits, both in the loss and in :func:`enlarge`.

With ``False`` a cell represents the centre of its pixels, as in the paper's deconvolution with fixed
weights (inside the image: Caffe's damps the outer 4 pixels). The backbone's features are centred a few
pixels up and left of there. This offset is the same at every position and for every image size, so the
network can learn it. With ``True`` the offset would grow along the image and depend on its size, unless
the size is a multiple of the stride plus one.
"""


def covered(logits: Tensor, size: tuple[int, int], stride: int | None) -> tuple[int, int]:
    """Return the height and width that the cells of coarse logits (B, C, h, w) cover, ``stride`` pixels per cell.

    An image whose size is not a multiple of the stride ends inside its last cells. Squeezing all cells into the image
    would shift them, more so the farther they are from the top-left corner. Without a stride, the logits are assumed to
    cover exactly the image.
    """
    return size if stride is None else (logits.shape[2] * stride, logits.shape[3] * stride)


def enlarge(logits: Tensor, size: tuple[int, int], stride: int | None) -> Tensor:
    """Upsample coarse logits (B, C, h, w) bilinearly to the image size (H, W); see :func:`covered`."""
    return _cut(interpolated(logits, covered(logits, size, stride), ALIGN_CORNERS), size, stride)


def enlarge_features(features: Tensor, size: tuple[int, int], stride: int) -> Tensor:
    """Do the same with features, which are never infinite."""
    full = F.interpolate(features, covered(features, size, stride), mode="bilinear", align_corners=ALIGN_CORNERS)
    return _cut(full, size, stride)


def _cut(full: Tensor, size: tuple[int, int], stride: int | None) -> Tensor:
    if stride is None:
        return full
    # Cuts, as a slice would; but a slice's strides tie a program that torch.export traces to its example's sizes.
    return F.pad(full, (0, size[1] - full.shape[3], 0, size[0] - full.shape[2]))


class Network(nn.Module):
    """Maps images (B, 3, H, W) to coarse logits (B, C, h, w): the base class of DeepLab and FPN."""

    output_strides: ClassVar[tuple[int, ...]]
    """Output strides that the backbone may have. The first is the default."""
    logit_stride: ClassVar[int | None] = None
    """Pixels per cell of the logits; None if it is the backbone's output stride."""

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        if backbone.output_stride not in self.output_strides:
            strides = " or ".join(map(str, sorted(self.output_strides)))
            raise ValueError(
                f"{type(self).__name__} needs a backbone with output stride {strides}, got {backbone.output_stride}"
            )
        self.backbone = backbone
        self.num_classes = num_classes

    def backbone_parameters(self) -> Iterator[Parameter]:
        """Return the parameters that pretrained weights initialise."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[Parameter]:
        """Return the randomly initialised parameters, which train at a higher learning rate."""
        return (parameter for part in self.head_parts().values() for parameter in part.parameters())

    def head_parts(self) -> dict[str, nn.Module]:
        """Return every part but the backbone, by name."""
        return {name: part for name, part in self.named_children() if name != "backbone"}


def unit(inputs: int, outputs: int) -> nn.Sequential:
    """1×1 convolution, BatchNorm, ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def separable(inputs: int, outputs: int, rate: int = 1) -> nn.Sequential:
    """Depthwise 3×3 convolution with a dilation rate, then a :func:`unit`."""
    depthwise = nn.Conv2d(inputs, inputs, 3, padding=rate, dilation=rate, groups=inputs, bias=False)
    return nn.Sequential(depthwise, *unit(inputs, outputs))
