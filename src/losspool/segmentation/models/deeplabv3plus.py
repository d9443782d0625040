"""DeepLabV3+: atrous pyramid pooling with image pooling, and a decoder that joins features of stride 4."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from losspool.segmentation.models.backbone import Backbone
from losspool.segmentation.models.network import Network, enlarge_features, separable, unit

RATES = {16: (6, 12, 18), 8: (12, 24, 36)}
"""Dilation rates by output stride. A cell at stride 8 is half as wide, so the rates double."""
WIDTH = 256
LOW_WIDTH = 48
"""Channels of the features of stride 4 in the decoder: few, so that they do not outweigh the others."""


class ImagePyramid(nn.Module):
    """ASPP of DeepLabV3: a 1×1 convolution, one 3×3 per rate, and the mean over the image, concatenated and mixed."""

    def __init__(self, inputs: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList([unit(inputs, WIDTH), *(separable(inputs, WIDTH, rate) for rate in rates)])
        # With a bias instead of BatchNorm, which would see one value per image: too few, and none for a batch of one.
        self.pool = nn.Conv2d(inputs, WIDTH, 1)
        self.mix = unit(WIDTH * (len(self.branches) + 1), WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.relu(self.pool(x.mean((2, 3), keepdim=True))).expand(-1, -1, x.shape[2], x.shape[3])
        return cast(Tensor, self.mix(torch.cat([*(branch(x) for branch in self.branches), pooled], 1)))


class DeepLabV3Plus(Network):
    """The network of Chen et al. (2018), with the separable convolutions of its Sec. 3.1. Logits have stride 4.

    Args:
        backbone: a backbone with output stride 16 or 8.
        num_classes: number of classes C.
    """

    output_strides = tuple(RATES)
    logit_stride = 4

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__(backbone, num_classes)
        self.aspp = ImagePyramid(backbone.out_channels, RATES[backbone.output_stride])
        self.low = unit(backbone.channels[0], LOW_WIDTH)
        self.decoder = nn.Sequential(separable(WIDTH + LOW_WIDTH, WIDTH), separable(WIDTH, WIDTH))
        self.classifier = nn.Conv2d(WIDTH, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        low, *_, high = self.backbone.levels(x)
        low = self.low(low)
        high = enlarge_features(self.aspp(high), (low.shape[2], low.shape[3]), self.backbone.output_stride // 4)
        return cast(Tensor, self.classifier(self.decoder(torch.cat([high, low], 1))))
