"""A small feature pyramid: lateral 1×1 convolutions, image pooling, and separable mixing from coarse to fine."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from losspool.segmentation.models.backbone import Backbone
from losspool.segmentation.models.network import Network, enlarge_features, separable

WIDTH = 96


class FPN(Network):
    """A pyramid after Lin et al. (2017), slimmed for the CPU: its head is separable. Logits have stride 4.

    Args:
        backbone: a backbone with output stride 32, where it is cheapest; 16 and 8 are dilated.
        num_classes: number of classes C.
    """

    output_strides = (32, 16, 8)
    logit_stride = 4

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__(backbone, num_classes)
        self.lateral = nn.ModuleList(nn.Conv2d(inputs, WIDTH, 1, bias=False) for inputs in backbone.channels)
        self.pool = nn.Conv2d(backbone.out_channels, WIDTH, 1)
        self.mix = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True), separable(WIDTH, WIDTH))
            for _ in backbone.channels
        )
        self.classifier = nn.Conv2d(WIDTH, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels, strides = self.backbone.levels(x), self.backbone.strides
        y = self.pool(levels[-1].mean((2, 3), keepdim=True)) + self.lateral[-1](levels[-1])
        y = self.mix[-1](y)
        for finer in (2, 1, 0):
            side = self.lateral[finer](levels[finer])
            y = enlarge_features(y, (side.shape[2], side.shape[3]), strides[finer + 1] // strides[finer])
            y = self.mix[finer](y + side)
        return cast(Tensor, self.classifier(y))
