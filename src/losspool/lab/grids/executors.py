"""The table of executors: where the tasks of a grid run. The results are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from losspool.lab.grids.local import LocalExecutor
from losspool.lab.grids.ray import RayExecutor
from losspool.lab.grids.slurm import SlurmExecutor, sbatch_file
from losspool.lab.grids.tasks import Executor, Options
from losspool.segmentation.base import UserError


@dataclass(frozen=True)
class ExecutorKind:
    """How an executor is made, and which options of ``losspool lab run`` it takes beside --jobs and --threads."""

    make: Callable[[Options], Executor]
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    preview: Callable[[Options, int, Path], str] | None = None
    """For --dry-run: what it would submit for this number of tasks, with their logs in this folder."""


EXECUTORS = {
    "local": ExecutorKind(lambda options: LocalExecutor(options.jobs or 1, torch.cuda.device_count())),
    "ray": ExecutorKind(RayExecutor, takes=("address", "gpus_per_run")),
    "slurm": ExecutorKind(
        SlurmExecutor, takes=("partition", "time", "gpus_per_run"), needs=("threads", "time"), preview=sbatch_file
    ),
}


def find_executor(name: str, options: Options) -> ExecutorKind:
    """The entry of that name, if the options fit it."""
    if name not in EXECUTORS:
        raise UserError(f"--executor must be {_either(EXECUTORS)}, got {name!r}")
    for field in ("jobs", "threads", "gpus_per_run"):
        value, least = getattr(options, field), 0 if field == "gpus_per_run" else 1
        if value is not None and value < least:
            raise UserError(f"{_flag(field)} must be at least {least}, got {value}")
    kind = EXECUTORS[name]
    for field in dict.fromkeys(field for each in EXECUTORS.values() for field in each.takes):
        value = getattr(options, field)
        if value is not None and field not in kind.takes:
            takers = [other for other, each in EXECUTORS.items() if field in each.takes]
            raise UserError(f"{_flag(field)} {value} is for --executor {_either(takers)}")
    if missing := [_flag(field) for field in kind.needs if getattr(options, field) is None]:
        raise UserError(f"--executor {name} needs {' and '.join(missing)}")
    return kind


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
