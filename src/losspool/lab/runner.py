"""A grid from start to finish: what is done is skipped, what broke is resumed, what fails is named at the end."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from losspool.lab.executors import Executor, Outcome, Task
from losspool.lab.grid import Job
from losspool.lab.progress import Progress
from losspool.segmentation.base import Interrupt, UserError

_POLL = 0.5
"""Seconds between two looks at what runs."""


@dataclass
class Result:
    """How a grid went."""

    finished: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """What the runs that failed said last, by name."""


def state_of(job: Job) -> str:
    """What running the grid would do with the job. Nothing is changed by looking."""
    if not job.missing:
        return "finished"
    if job.trained:
        return "to be evaluated"
    return "to be resumed" if job.folder.config.exists() else "new"


def run_jobs(jobs: Sequence[Job], run_with: Executor, *, threads: int, logs: Path) -> Result:
    """Run all that is not finished.

    Raises :class:`losspool.segmentation.base.process.Interrupted` when a signal ended it early; nothing runs on then.
    """
    result, by_name = Result(), {job.name: job for job in jobs}
    folder = logs.absolute()
    stop = folder / f".stop-{secrets.token_hex(8)}"  # of this runner: another one may have the same folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None
    tasks = {
        job.name: Task(job.name, tuple(job.missing), folder / f"{job.name}.log", Path.cwd(), stop, threads)
        for job in jobs
        if job.missing
    }
    # A task writes to its log when it begins, wherever it runs: that is how its state is seen.
    sizes = {name: _size(task.log) for name, task in tasks.items()}
    with Interrupt() as interrupt, Progress(jobs) as progress:
        for job in jobs:
            if job.name not in tasks:
                progress.set(job.name, "finished")
        try:
            run_with.start(list(tasks.values()))
            while tasks:
                for outcome in run_with.ended(_POLL):
                    del tasks[outcome.name]
                    _settle(by_name[outcome.name], outcome, result, progress)
                for name, task in tasks.items():
                    if progress.rows[name].state == "waiting" and _size(task.log) != sizes[name]:
                        progress.set(name, "running")
                progress.update()
                interrupt.check()
        finally:
            run_with.stop()
            stop.unlink(missing_ok=True)
    result.finished = [job for job in jobs if not job.missing]
    return result


def _settle(job: Job, outcome: Outcome, result: Result, progress: Progress) -> None:
    if outcome.code == 0 and not job.missing:
        progress.set(job.name, "finished")
    else:
        result.failed[job.name] = outcome.message or f"ended with code {outcome.code}"
        progress.set(job.name, "failed")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
