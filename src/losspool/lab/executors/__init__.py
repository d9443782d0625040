"""Who runs the jobs of a grid: processes on this machine, or Ray on one machine or many. The results are the same."""

from __future__ import annotations

import torch

from losspool.lab.executors.local import LocalExecutor
from losspool.lab.executors.on_ray import RayExecutor
from losspool.lab.executors.task import Executor, Outcome, Task
from losspool.segmentation.base import UserError

__all__ = ["Executor", "Outcome", "Task", "executor"]


def executor(kind: str, *, jobs: int, address: str | None) -> Executor:
    """``local`` or ``ray``."""
    if kind == "ray":
        return RayExecutor(address)
    if kind != "local":
        raise UserError(f"--executor must be local or ray, got {kind!r}")
    if address is not None:
        raise UserError(f"--address {address} is for --executor ray")
    return LocalExecutor(jobs, torch.cuda.device_count())
