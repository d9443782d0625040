"""Read values and times of a device while the host runs ahead of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


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
