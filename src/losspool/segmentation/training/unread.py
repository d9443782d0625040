"""Steps whose statistics are still on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.training.device import HostCopy
from losspool.segmentation.training.sampling import Draw
from losspool.segmentation.training.step_stats import StepStats


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
