"""DeepLabV2: a dilated backbone, four summed atrous branches, fixed bilinear upsampling."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from losspool.segmentation.models.backbone import Backbone
from losspool.segmentation.models.network import Network

RATES = {8: (6, 12, 18, 24), 16: (3, 6, 9, 12)}
"""Dilation rates of the branches, by output stride. A cell at stride 16 is twice as wide, so the rates halve."""


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: the sum of 3×3 convolutions with bias, one per rate."""

    def __init__(self, inputs: int, num_classes: int, rates: tuple[int, ...]) -> None:
        super().__init__()
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


class DeepLabV2(Network):
    """The network of Chen et al. (2016) without its CRF. Maps images (B, 3, H, W) to coarse logits (B, C, h, w).

    Args:
        backbone: a backbone with output stride 8, as published, or 16.
        num_classes: number of classes C.
    """

    output_strides = tuple(RATES)

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__(backbone, num_classes)
        self.aspp = ASPP(backbone.out_channels, num_classes, RATES[backbone.output_stride])

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.aspp(self.backbone(x)))
