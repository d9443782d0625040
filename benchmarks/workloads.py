"""The inputs: random logits, labels and losses from fixed seeds, the same for every contestant."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CLASSES = 19
VOID = 255
VOID_SHARE = 0.1
P = 1.3
M = 0.25


class Workload(NamedTuple):
    """The shapes of logits (B, C, h, w) and labels (B, H, W), or (N, C) and (N,).

    Labels of the shape of the logits are class probabilities.
    """

    logits: tuple[int, ...]
    labels: tuple[int, ...]


WORKLOADS = {
    "full": Workload((2, CLASSES, 550, 550), (2, 550, 550)),
    "probabilities": Workload((2, CLASSES, 550, 550), (2, CLASSES, 550, 550)),
    "upsampled-550": Workload((2, CLASSES, 69, 69), (2, 550, 550)),
    "upsampled-2048": Workload((1, CLASSES, 128, 256), (1, 1024, 2048)),
    # Small and middle sizes, many classes, and no images.
    "8×5×32×32": Workload((8, 5, 32, 32), (8, 32, 32)),
    "4×19×64×64": Workload((4, CLASSES, 64, 64), (4, 64, 64)),
    "4×19×128×128": Workload((4, CLASSES, 128, 128), (4, 128, 128)),
    "2×19×256×256": Workload((2, CLASSES, 256, 256), (2, 256, 256)),
    "32×2×64×64": Workload((32, 2, 64, 64), (32, 64, 64)),
    "2×150×128×128": Workload((2, 150, 128, 128), (2, 128, 128)),
    "512×1000": Workload((512, 1000), (512,)),
    "512×32000": Workload((512, 32_000), (512,)),
    # For warming up: large enough that torch splits the work between threads.
    "full-tiny": Workload((2, CLASSES, 64, 64), (2, 64, 64)),
    "upsampled-tiny": Workload((2, CLASSES, 8, 8), (2, 64, 64)),
}


def make(workload: Workload) -> tuple[Tensor, Tensor]:
    """Logits that require a gradient, and labels of which a tenth are void, or class probabilities."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(workload.logits, generator=generator)
    if workload.labels == workload.logits:
        return logits.requires_grad_(), torch.randn(workload.labels, generator=generator).softmax(1)
    labels = torch.randint(workload.logits[1], workload.labels, generator=generator)
    labels[torch.rand(workload.labels, generator=generator) < VOID_SHARE] = VOID
    return logits.requires_grad_(), labels


def losses(pools: int, pixels: int) -> Tensor:
    """(pools, pixels) losses, all valid: the cross-entropy of random logits and labels."""
    generator = torch.Generator().manual_seed(0)
    result = torch.empty(pools * pixels)
    for part in result.split(1_000_000):  # a hundred million pixels' logits would take 8 GB
        logits = torch.randn(part.numel(), CLASSES, generator=generator)
        labels = torch.randint(CLASSES, (part.numel(),), generator=generator)
        part.copy_(F.cross_entropy(logits, labels, reduction="none"))
    return result.view(pools, pixels)
