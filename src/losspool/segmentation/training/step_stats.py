"""Statistics of a training step, as sums over micro-batches, ranks and steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from losspool.segmentation.data import IGNORE
from losspool.segmentation.losses import LossResult
from losspool.segmentation.prediction import confusion
from losspool.stats import class_mass

# "unused" keeps the places of the others: older checkpoints store whether the run was stopped there.
_SCALARS = ("batches", "loss", "pools", "alpha", "valid", "saturated", "unused")
# These come last in the vector, the newest at the end, so that windows of older checkpoints without them still fit.
_LATER = ("skipped", "norms", "norm", "largest_norm")


@dataclass
class StepStats:
    """One vector, so that ranks reduce it at once: scalars, weight mass per class, confusion matrix, later scalars."""

    values: Tensor
    classes: int

    @classmethod
    def zeros(cls, classes: int, device: torch.device | str = "cpu") -> StepStats:
        size = len(_SCALARS) + classes + classes * classes + len(_LATER)
        return cls(torch.zeros(size, dtype=torch.float64, device=device), classes)

    def __iadd__(self, other: StepStats) -> StepStats:
        largest = torch.maximum(self.values[-1], other.values[-1])
        self.values += other.values
        self.values[-1] = largest
        return self

    def _scalar(self, name: str) -> float:
        place = _LATER.index(name) - len(_LATER) if name in _LATER else _SCALARS.index(name)
        return float(self.values[place])

    @property
    def loss(self) -> float:
        """The mean over batches."""
        return self._scalar("loss") / max(self._scalar("batches"), 1)

    @property
    def counts(self) -> Tensor:
        """(C, C): the confusion matrix. float64 holds the counts exactly."""
        return self.values[len(_SCALARS) + self.classes : -len(_LATER)].view(self.classes, self.classes)

    @property
    def skipped(self) -> int:
        """Number of crops that were replaced because their image is broken."""
        return int(self._scalar("skipped"))

    def reduced(self, fabric: Fabric) -> StepStats:
        """The sum over ranks."""
        values = self.values.clone()
        if fabric.world_size > 1:
            torch.distributed.all_reduce(values)  # fabric.all_reduce begins with a barrier, which waits for the device
        return StepStats(values, self.classes)

    def with_norm(self, norm: Tensor) -> StepStats:
        """With the norm of the step's gradient, which is the same on all ranks, and so added after reducing.

        One that is not finite is left out: in half precision, the scaler skips such steps.
        """
        value = norm.nan_to_num(0.0, 0.0, 0.0)
        self.values[-3:] = torch.stack([norm.isfinite(), value, value]).double()
        return self

    def summary(self) -> dict[str, Any]:
        """The entries of a line in metrics.jsonl."""
        mass = self.values[len(_SCALARS) : len(_SCALARS) + self.classes]
        total = float(mass.sum())
        return {
            "loss": self.loss,
            "alpha": self._scalar("alpha") / max(self._scalar("pools"), 1),
            "saturated": self._scalar("saturated") / max(self._scalar("valid"), 1),
            "grad_norm": self._scalar("norm") / self._scalar("norms") if self._scalar("norms") else None,
            "grad_norm_max": self._scalar("largest_norm") if self._scalar("norms") else None,
            "mass": (mass / total).tolist() if total > 0 and math.isfinite(total) else mass.tolist(),
        }


def step_stats(result: LossResult, labels: Tensor, classes: int, skipped: int = 0) -> StepStats:
    """The statistics of one micro-batch."""
    stats = result.stats
    alpha, pooled, saturated = stats.alpha, stats.valid, stats.saturated
    scalars = torch.stack(
        [
            torch.ones((), dtype=torch.float64, device=labels.device),
            result.loss.detach().double(),
            (pooled > 0).sum().double(),
            alpha.sum(),
            (labels != IGNORE).sum().double(),  # this rank's only: stats.valid of a global pool covers all ranks
            saturated.sum().double(),
            torch.zeros((), dtype=torch.float64, device=labels.device),
        ]
    )
    mass = class_mass(result.weights, labels, classes)
    counts = confusion(result.prediction, labels, classes).flatten().double()
    # new_full is filled on the device; new_tensor would copy the number from the host, and wait for the device.
    later = [counts.new_full((1,), skipped), counts.new_zeros(len(_LATER) - 1)]
    return StepStats(torch.cat([scalars, mass, counts, *later]), classes)
