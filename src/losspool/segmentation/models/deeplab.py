"""DeepLabV2: a dilated backbone, four summed atrous branches, a fixed bilinear enlargement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from losspool.segmentation.models.backbone import Backbone

RATES = {8: (6, 12, 18, 24), 16: (3, 6, 9, 12)}
"""The branches' dilations by output stride. A cell at stride 16 is twice as wide: half the rate sees as far."""

ALIGN_CORNERS = False
"""How coarse logits are enlarged, in the loss (``align_corners=``) and in :func:`enlarge` alike.

With ``False`` a cell stands for the middle of its pixels, as in the paper's deconvolution with fixed
weights. The backbone looks a few pixels up and left of there, by the same amount at every position
and for every size of image, so the network can learn it. With ``True`` the amount would grow along
the image and depend on its size, unless that is a multiple of the stride plus one.
"""


def covered(logits: Tensor, size: tuple[int, int], stride: int | None) -> tuple[int, int]:
    """The height and width that the cells of coarse logits (B, C, h, w) stand for: with a stride that many pixels each.

    An image whose size is no multiple of the stride ends within the last cells. Were all of them squeezed into it, they
    would stand for other places the farther they are from its first corner. Without a stride nothing is known but that
    the logits are of the whole image.
    """
    return size if stride is None else (logits.shape[2] * stride, logits.shape[3] * stride)


def enlarge(logits: Tensor, size: tuple[int, int], stride: int | None) -> Tensor:
    """Coarse logits (B, C, h, w) at the size (H, W) of the image, bilinearly, see :func:`covered`."""
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
    """The network of Chen et al. (2016) without its CRF: images (B, 3, H, W) to coarse logits (B, C, h, w).

    Args:
        backbone: of output stride 8, as published, or 16.
        num_classes: C.
    """

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        if backbone.output_stride not in RATES:
            raise ValueError(f"DeepLabV2 has an output stride of 8 or 16, got a backbone of {backbone.output_stride}")
        self.backbone = backbone
        self.aspp = ASPP(backbone.out_channels, num_classes, RATES[backbone.output_stride])

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.aspp(self.backbone(x)))

    def backbone_parameters(self) -> Iterator[Parameter]:
        """Those that pretrained weights come for."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[Parameter]:
        """Those that start fresh, and learn at ten times the rate."""
        return self.aspp.parameters()
