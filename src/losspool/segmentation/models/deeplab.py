"""DeepLabV2: a dilated backbone, four summed atrous branches, fixed bilinear upsampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from losspool.segmentation.models.backbone import Backbone

RATES = {8: (6, 12, 18, 24), 16: (3, 6, 9, 12)}
"""Dilation rates of the branches, by output stride. A cell at stride 16 is twice as wide, so the rates halve."""

ALIGN_CORNERS = False
"""``align_corners`` for upsampling coarse logits, both in the loss and in :func:`enlarge`.

With ``False`` a cell represents the centre of its pixels, as in the paper's deconvolution with fixed
weights. The backbone's features are centred a few pixels up and left of there. This offset is the
same at every position and for every image size, so the network can learn it. With ``True`` the offset
would grow along the image and depend on its size, unless the size is a multiple of the stride plus one.
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
    full = F.interpolate(logits, covered(logits, size, stride), mode="bilinear", align_corners=ALIGN_CORNERS)
    return full[:, :, : size[0], : size[1]]


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: the sum of 3×3 convolutions with bias, one per rate."""

    def __init__(self, inputs: int, num_classes: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.branches = nn.ModuleList(nn.Conv2d(inputs, num_classes, 3, padding=rate, dilation=rate) for rate in rates)
        for branch in self.branches:
            nn.init.normal_(cast(Tensor, branch.weight), std=0.01)
            nn.init.zeros_(cast(Tensor, branch.bias))

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.branches
        total = cast(Tensor, first(x))
        for branch in rest:
            total = total + branch(x)
        return total


class DeepLabV2(nn.Module):
    """The network of Chen et al. (2016) without its CRF. Maps images (B, 3, H, W) to coarse logits (B, C, h, w).

    Args:
        backbone: a backbone with output stride 8, as published, or 16.
        num_classes: number of classes C.
    """

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        if backbone.output_stride not in RATES:
            raise ValueError(f"DeepLabV2 needs a backbone with output stride 8 or 16, got {backbone.output_stride}")
        self.backbone = backbone
        self.aspp = ASPP(backbone.out_channels, num_classes, RATES[backbone.output_stride])

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.aspp(self.backbone(x)))

    def backbone_parameters(self) -> Iterator[Parameter]:
        """Return the parameters that pretrained weights initialise."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[Parameter]:
        """Return the randomly initialised parameters, which train at ten times the learning rate."""
        return self.aspp.parameters()
