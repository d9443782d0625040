"""How the crops of a step are divided among processes and micro-batches, and how these add up to one loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.distributed import ProcessGroup

from losspool.segmentation.base import UserError, counted
from losspool.segmentation.config import TrainConfig


class MicroBatches(NamedTuple):
    """The part of a step that each process has."""

    size: int
    """Crops of a micro-batch."""
    number: int
    """Micro-batches of a process."""
    processes: int

    @classmethod
    def of(cls, train: TrainConfig, processes: int) -> MicroBatches:
        """``train.global_batch`` crops, in micro-batches of up to ``train.batch``; or what ``batch`` and
        ``accumulate`` say."""
        whole = train.global_batch
        if whole is None:
            return cls(train.batch, train.accumulate, processes)
        if train.accumulate > 1:
            raise UserError(
                f"train.accumulate = {train.accumulate} cannot be combined with train.global_batch = {whole}, which "
                f"sets the number of micro-batches; leave it at 1"
            )
        share, rest = divmod(whole, processes)
        if rest:
            nearest = max(round(whole / processes), 1) * processes
            divisors = ", ".join(str(each) for each in range(1, whole + 1) if whole % each == 0)
            raise UserError(
                f"train.global_batch = {whole} cannot be divided among {processes} processes; the nearest number that "
                f"can is {nearest}, and {whole} can be divided among {divisors}"
            )
        size = next(size for size in range(min(train.batch, share), 0, -1) if share % size == 0)
        return cls(size, share // size, processes)

    @property
    def crops(self) -> int:
        """Crops of a step over all processes."""
        return self.size * self.number * self.processes

    def check_kept(self, before: MicroBatches, train: TrainConfig, scope: str, run: Path) -> None:
        """Raise ``UserError`` if a run that was split as ``before`` cannot go on like this."""
        if train.global_batch is None and before.processes != self.processes:
            raise UserError(
                f"{run}: the run was started with {_processes(before)}, got {self.processes}; resume it with the same "
                f"number, or with train.global_batch={before.crops} and any number that divides it"
            )
        if before.crops != self.crops:
            raise UserError(f"{run}: its steps have {before.crops} crops, train.global_batch says {self.crops}")
        if scope == "batch" and self.size > 1 and before.processes != self.processes:
            raise UserError(
                f"{run}: its loss pools the crops of a process's micro-batch, and with {_processes(self)} these would "
                f"be other crops than with {before.processes}; resume it with {_processes(before)}"
            )
        if before.pooled(scope) != self.pooled(scope):
            raise UserError(
                f"{run}: its loss pooled {counted(before.pooled(scope), 'crop')} at a time so far; with "
                f"{_processes(self)} and train.batch = {train.batch} it would pool {self.pooled(scope)}; "
                f"{self._remedy(before, scope)}"
            )

    def _remedy(self, before: MicroBatches, scope: str) -> str:
        """What pools as many crops as before."""
        size, rest = divmod(before.pooled(scope), self.processes if scope == "global" else 1)
        if rest or (self.size * self.number) % size:
            return f"resume it with {_processes(before)} and train.batch={before.size}"
        return f"set train.batch={size}"

    def pooled(self, scope: str) -> int:
        """Crops that share a pool."""
        return {"image": 1, "batch": self.size, "global": self.size * self.processes}[scope]

    def loss_factors(self, valid: Sequence[int], scope: str, hosts: ProcessGroup | None) -> list[float]:
        """What to multiply the loss of each micro-batch by, so that their mean over all micro-batches and processes is
        the mean over the step's images that have a valid pixel. Only where each image is a pool; else 1.

        ``valid`` has the number of such images of each micro-batch, over which its own loss is the mean. Where no crop
        of the step is entirely void, every factor is exactly 1.
        """
        if scope != "image":
            return [1.0] * len(valid)
        images, parts = sum(valid), len(valid)
        if hosts is not None:
            totals = torch.tensor([images, parts])
            torch.distributed.all_reduce(totals, group=hosts)
            images, parts = totals.tolist()
        return [each * parts / images if images else 1.0 for each in valid]


def _processes(split: MicroBatches) -> str:
    return counted(split.processes, "process", "processes")
