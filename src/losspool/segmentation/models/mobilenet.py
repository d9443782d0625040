"""MobileNetV2 without its classifier, with torchvision's key names."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from losspool.segmentation.models.backbone import Atrous, Backbone, Variant, atrous, check_backbone, draw_weights

# Table 2 of Sandler et al. (2018): expansion, channels, blocks, stride of the first block.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_CUTS = (0, 4, 7, 14, 18)  # the layers that end at strides 4, 8, 16 and 32


def _unit(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6; padded so that only the stride changes the size."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expanding 1×1, depthwise 3×3, linear projecting 1×1; adds the input if the shapes match."""

    def __init__(self, inputs: int, outputs: int, expansion: int, step: Atrous) -> None:
        super().__init__()
        width = inputs * expansion
        widen = [_unit(inputs, width, 1)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            _unit(width, width, 3, step.stride, step.at, groups=width),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.residual = step.stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = cast(Tensor, self.conv(x))
        return x + y if self.residual else y


class MobileNetV2(Backbone):
    """The network of Sandler et al. (2018), fully convolutional, up to the 320 channels before the last 1×1.

    The authors' own segmentation networks (their Sec. 6.3) use this layer as well. The last 1×1
    expands it to 1,280 channels for the classifier, which costs as much as the head and gains nothing.

    Args:
        output_stride: 8 or 16, by dilation; 32 is the original classification network.
        variant: ``"torchvision"`` only. The depthwise 3×3 has the stride. If the stride is removed,
            it keeps its previous dilation.
    """

    classifier = ("classifier.", "features.18.")

    def __init__(self, output_stride: int = 8, variant: Variant = "torchvision") -> None:
        super().__init__()
        check_backbone("MobileNetV2", output_stride, variant, ("torchvision",))
        self.output_stride = output_stride
        self.variant = variant
        self.channels = (24, 32, 96, 320)

        parts: list[nn.Module] = [_unit(3, 32, 3, 2)]
        inputs = 32
        steps = atrous([stride for *_, stride in _STAGES], 2, output_stride)
        for (expansion, outputs, count, _), first in zip(_STAGES, steps, strict=True):
            for step in (first, *[first.after()] * (count - 1)):
                parts.append(InvertedResidual(inputs, outputs, expansion, step))
                inputs = outputs
        self.features = nn.Sequential(*parts)
        draw_weights(self)

    def stages(self) -> list[list[nn.Module]]:
        layers = list(self.features)
        return [layers[first:last] for first, last in pairwise(_CUTS)]
