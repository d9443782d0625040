"""Statistics and times of training steps. The device computes them; the host runs ahead of it and reads them later."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from losspool.segmentation.base import BrokenFileError, UserError
from losspool.segmentation.data import IGNORE
from losspool.segmentation.losses import LossResult
from losspool.segmentation.prediction import confusion
from losspool.segmentation.training.processes import joined
from losspool.segmentation.training.sampling import Draw
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


def host_waits(device: torch.device) -> bool:
    """Whether reading a value makes the host wait for the device. On the CPU, every value is there at once."""
    return device.type != "cpu"


class HostCopy:
    """A copy of a tensor in the host's memory. The copy starts at once; the host waits for it only in :meth:`read`."""

    def __init__(self, values: Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._values = values
        if host_waits(values.device):
            # Only into pinned memory can a device copy by itself.
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
            self._values.copy_(values, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record()

    def read(self) -> Tensor:
        """Wait until the copy is complete, but not for work that the device was given after it."""
        if self._done is not None:
            self._done.synchronize()
        return self._values


class Stopwatch:
    """Sums the time that the device works on blocks of code."""

    def __init__(self, device: torch.device) -> None:
        self._events_needed = host_waits(device)  # the host would only measure how long it takes to ask for the work
        self._seconds = 0.0
        self._blocks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure a block."""
        if self._events_needed:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            yield
            end.record()
            self._blocks.append((begin, end))
        else:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began

    def take(self) -> float:
        """The seconds since the last call. Waits until the device has finished the last block."""
        if self._blocks:
            self._blocks[-1][1].synchronize()
            self._seconds += sum(begin.elapsed_time(end) for begin, end in self._blocks) / 1000
            self._blocks.clear()
        taken, self._seconds = self._seconds, 0.0
        return taken


@dataclass
class Step:
    """A step, with all that is needed to report on it later."""

    number: int
    """The first step is 1."""
    mine: StepStats
    """The statistics of this rank."""
    total: StepStats
    """Their sum over ranks."""
    draws: list[Draw]
    broken: list[BrokenFileError]

    def not_finite(self, fabric: Fabric, names: Sequence[str], lr: float) -> UserError:
        """The error of a loss that is not finite, with its images. Every rank must call this."""
        images = [] if math.isfinite(self.mine.loss) else [names[draw.image] for draw in self.draws]
        return UserError(
            f"the loss is not finite at step {self.number}, on the images {', '.join(joined(fabric, images))}; "
            f"try a lower train.lr than {lr:g}"
        )


class UnreadSteps:
    """A queue of steps. It keeps their statistics on the device until they are read.

    The sampler needs a step when ``age`` more steps are done. A step that is not read by half of that time is copied to
    the host in the background, so that the sampler does not wait for the device. A copy that starts only when it is
    needed would wait for all steps since.
    """

    def __init__(self, age: int) -> None:
        self.age = age
        self._copied: deque[tuple[Step, HostCopy, int]] = deque()  # with the row of the copy; older than the others
        self._on_device: list[Step] = []

    def add(self, step: Step) -> None:
        self._on_device.append(step)
        if len(self._on_device) > self.age // 2:
            self._start_copy()

    def read(self, until: int) -> Iterator[tuple[Step, StepStats]]:
        """Yield the steps up to ``until`` in order, with their totals on the host.

        A step leaves the queue when the next one is asked for. If the caller raises an error, the step stays, and the
        next read finds it again.
        """
        if self._on_device and self._on_device[0].number <= until:
            self._start_copy()
        while self._copied and self._copied[0][0].number <= until:
            step, copy, row = self._copied[0]
            yield step, StepStats(copy.read()[row], step.total.classes)
            self._copied.popleft()

    def _start_copy(self) -> None:
        copy = HostCopy(torch.stack([step.total.values for step in self._on_device]))
        self._copied += [(step, copy, row) for row, step in enumerate(self._on_device)]
        self._on_device = []
