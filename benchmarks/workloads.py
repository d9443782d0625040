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
    """The shapes of logits (B, C, h, w) and labels (B, H, W)."""

    logits: tuple[int, int, int, int]
    labels: tuple[int, int, int]


WORKLOADS = {
    "full": Workload((2, CLASSES, 550, 550), (2, 550, 550)),
    "upsampled-550": Workload((2, CLASSES, 69, 69), (2, 550, 550)),
    "upsampled-2048": Workload((1, CLASSES, 128, 256), (1, 1024, 2048)),
    # For warming up: large enough that torch splits the work between threads.
    "full-tiny": Workload((2, CLASSES, 64, 64), (2, 64, 64)),
    "upsampled-tiny": Workload((2, CLASSES, 8, 8), (2, 64, 64)),
}


def make(name: str) -> tuple[Tensor, Tensor]:
    """Logits that require a gradient, and labels of which a tenth are void."""
    workload = WORKLOADS[name]
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(workload.logits, generator=generator)
    labels = torch.randint(CLASSES, workload.labels, generator=generator)
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
