"""Small networks by import path: ``model.name=tiny_model.build``."""

import torch
from torch import nn

from losspool.segmentation.models import TrainingOutput


def build(num_classes: int) -> nn.Module:
    """Coarse logits at stride 4, in a few thousand parameters, with BatchNorm and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, num_classes, 1),
    )


def build_plain(num_classes: int) -> nn.Module:
    """Without anything that depends on the batch or on chance."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(8, num_classes, 1))


def build_normed(num_classes: int) -> nn.Module:
    """With BatchNorm, and without dropout: with ``model.batch_norm=frozen``, images do not depend on each other."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, num_classes, 1)
    )


def build_memoriser(num_classes: int) -> nn.Module:
    """Logits at full size from the pixels and their coordinates: able to learn a few images by heart."""
    return Memoriser(num_classes)


class Memoriser(nn.Module):
    def __init__(self, num_classes: int, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 5
        for dilation in (1, 1, 2, 4, 8, 1):
            layers += [
                nn.Conv2d(inputs, width, 3, padding=dilation, dilation=dilation),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            inputs = width
        self.net = nn.Sequential(*layers, nn.Conv2d(width, num_classes, 1))

    def forward(self, x):
        batch, _, height, width = x.shape
        rows = torch.linspace(-1, 1, height).view(1, 1, -1, 1).expand(batch, 1, height, width)
        columns = torch.linspace(-1, 1, width).view(1, 1, 1, -1).expand(batch, 1, height, width)
        return self.net(torch.cat([x, rows, columns], 1))


def build_auxiliary(num_classes: int) -> nn.Module:
    """With an auxiliary head."""
    return Auxiliary(num_classes)


class Auxiliary(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.main, self.aux = (nn.Conv2d(3, num_classes, 3, stride=4, padding=1) for _ in range(2))

    def forward(self, x):
        return TrainingOutput(self.main(x), self.aux(x)) if self.training else self.main(x)


def not_a_network(num_classes: int):
    return num_classes


class _Wrong(nn.Conv2d):
    def __init__(self, num_classes: int, raising: bool) -> None:
        super().__init__(3, num_classes, 1)
        self.raising = raising

    def forward(self, x):
        if self.raising:
            raise RuntimeError("no forward")
        return {"result": super().forward(x)}


def build_wrong_output(num_classes: int) -> nn.Module:
    return _Wrong(num_classes, raising=False)


def build_raising(num_classes: int) -> nn.Module:
    return _Wrong(num_classes, raising=True)


def build_empty(num_classes: int) -> nn.Module:
    return nn.Identity()
