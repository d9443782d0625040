"""ResNet-18, -50 and -101 without the classifier, with torchvision's key names.

Two variants exist. Their weights have the same shapes, but weights of one variant give wrong results
in the other:

- ``"torchvision"``: the first block of a stage has the stride in its 3×3 convolution, and the max
  pooling rounds sizes down. If the stride is removed, that 3×3 keeps the previous stage's dilation.
- ``"caffe"``, used by the original DeepLabV2 weights: the stride is in the 1×1 before that 3×3, so
  every 3×3 of the stage is dilated, and the max pooling rounds sizes up.

Both follow from one rule, :func:`losspool.segmentation.models.backbone.atrous`. ResNet-18's blocks
have no 1×1, so its variants differ only in the pooling.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from torch import Tensor, nn

from losspool.segmentation.models.backbone import Atrous, Backbone, Variant, atrous, check_backbone, draw_weights

Depth = Literal[18, 50, 101]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    """Build a convolution padded so that only the stride changes the size."""
    padding = dilation * (kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation if kernel > 1 else 1, bias=False)


class _Block(nn.Module):
    """A residual block: ``relu(branch(x) + shortcut(x))``. The shortcut is projected if the shapes differ."""

    expansion: int

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return cast(Tensor, self.relu(self.branch(x) + shortcut))


class BasicBlock(_Block):
    """Two 3×3 convolutions. The first has the stride in both variants."""

    expansion = 1

    def __init__(self, inputs: int, width: int, step: Atrous, variant: Variant) -> None:
        super().__init__(inputs, width, step.stride)
        self.conv1 = _conv(inputs, width, 3, step.stride, step.at)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, 1, step.behind)
        self.bn2 = nn.BatchNorm2d(width)

    def branch(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return cast(Tensor, self.bn2(self.conv2(x)))


class Bottleneck(_Block):
    """1×1, 3×3 and 1×1 convolutions. The variant determines which of the first two has the stride."""

    expansion = 4

    def __init__(self, inputs: int, width: int, step: Atrous, variant: Variant) -> None:
        super().__init__(inputs, width, step.stride)
        early = variant == "caffe"
        self.conv1 = _conv(inputs, width, 1, step.stride if early else 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, 1 if early else step.stride, step.behind if early else step.at)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def branch(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return cast(Tensor, self.bn3(self.conv3(x)))


_LAYOUTS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
}


class ResNet(Backbone):
    """The residual network of He et al. (2015), fully convolutional.

    Args:
        depth: 18, 50 or 101.
        output_stride: 8 or 16, by dilation; 32 is the original classification network.
        variant: which layers carry the strides and dilations; must match the weights.
    """

    classifier = ("fc.",)

    def __init__(self, depth: Depth, output_stride: int = 8, variant: Variant = "torchvision") -> None:
        super().__init__()
        if depth not in _LAYOUTS:
            raise ValueError(f"the depth of ResNet must be 18, 50 or 101, got {depth!r}")
        check_backbone(f"ResNet-{depth}", output_stride, variant, get_args(Variant))
        block, blocks = _LAYOUTS[depth]
        self.output_stride = output_stride
        self.variant = variant
        widths = (64, 128, 256, 512)
        first, second, third, fourth = (width * block.expansion for width in widths)
        self.channels = (first, second, third, fourth)

        self.conv1 = _conv(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1, ceil_mode=variant == "caffe")
        stages, inputs = [], 64
        for width, count, step in zip(widths, blocks, atrous((1, 2, 2, 2), 4, output_stride), strict=True):
            stage = nn.Sequential(block(inputs, width, step, variant))
            inputs = width * block.expansion
            stage.extend(block(inputs, width, step.after(), variant) for _ in range(1, count))
            stages.append(stage)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        draw_weights(self)

    def stages(self) -> list[list[nn.Module]]:
        stem = [self.conv1, self.bn1, self.relu, self.maxpool]  # (B, 3, H, W) -> (B, 64, H/4, W/4)
        return [[*stem, self.layer1], [self.layer2], [self.layer3], [self.layer4]]
