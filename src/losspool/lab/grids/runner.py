"""Runs a grid: skips finished runs, resumes interrupted ones, and reports failed ones at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from losspool.lab.grids.executors import find_executor
from losspool.lab.grids.grid import Job, read_grid
from losspool.lab.grids.progress import Progress
from losspool.lab.grids.results import write_results
from losspool.lab.grids.tasks import Executor, Options, Outcome, Task
from losspool.segmentation.base import Interrupt, UserError, plain, say

_POLL = 0.5
"""Seconds between two polls of the executor."""


@dataclass
class Result:
    """The outcome of a grid."""

    finished: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The last line of each failed run's output, by name."""


def run_grid(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    executor: str = "local",
    options: Options | None = None,
    dry_run: bool = False,
    brief: bool = False,
) -> bool:
    """Run what is not finished, then write tables, figures and report; return whether all runs succeeded.

    The arguments are those of ``losspool lab run``, and ``brief`` is that of ``write_results``. Raises Interrupted when
    a signal ended it early.
    """
    options = options or Options()
    kind = find_executor(executor, options)
    grid = read_grid(path)
    folder = out or Path("lab") / grid.name
    planned, logs = grid.jobs(folder / "runs", overrides), folder / "logs"
    if dry_run:
        to_run = _list_jobs(planned)
        if kind.preview is not None and to_run:
            for line in kind.preview(options, to_run, logs).splitlines():
                print(plain(line))
        return True
    share = options.threads or max((os.cpu_count() or 1) // (options.jobs or 1), 1)
    result = run_jobs(planned, kind.make(options), threads=share, logs=logs)
    try:
        if result.finished:
            write_results(grid, planned, result.finished, folder, brief=brief)
    finally:
        for name, message in result.failed.items():
            say(f"failed: {name}: {message} (full output: {logs / f'{name}.log'})")
    return not result.failed


def _list_jobs(jobs: Sequence[Job]) -> int:
    """Print what each job would run; return how many have something to run."""
    for job in jobs:
        print(plain(f"{job.name}: {_state(job)}"))
        for words in job.missing:
            print(plain(f"  losspool {shlex.join(words)}"))
    to_run = sum(bool(job.missing) for job in jobs)
    print(f"{len(jobs)} runs, {to_run} of them to run")
    return to_run


def _state(job: Job) -> str:
    """What running the grid would do with the job."""
    if not job.missing:
        return "finished"
    if job.trained:
        return "to be evaluated"
    return "to be resumed" if job.folder.config.exists() else "new"


def run_jobs(jobs: Sequence[Job], run_with: Executor, *, threads: int, logs: Path) -> Result:
    """Run all jobs that are not finished.

    Raises :class:`losspool.segmentation.base.Interrupted` when a signal ended it early; nothing is left running.
    """
    result, by_name = Result(), {job.name: job for job in jobs}
    folder = logs.absolute()
    stop = folder / f".stop-{secrets.token_hex(8)}"  # one per runner: another may use the same folder
    try:
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None
    tasks = {
        job.name: Task(job.name, tuple(job.missing), folder / f"{job.name}.log", Path.cwd(), stop, threads)
        for job in jobs
        if job.missing
    }
    # A task writes to its log when it begins, on whichever machine: a growing log means that it runs.
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
                    _record_outcome(by_name[outcome.name], outcome, result, progress)
                for name, task in tasks.items():
                    if progress.rows[name].state == "waiting" and _size(task.log) != sizes[name]:
                        progress.set(name, "running")
                progress.update()
                interrupt.check()
        finally:
            run_with.stop()
            stop.unlink(missing_ok=True)
            for each in made:  # what is empty: a grid that was refused leaves nothing behind
                with contextlib.suppress(OSError):
                    each.rmdir()
    result.finished = [job for job in jobs if not job.missing]
    return result


def _record_outcome(job: Job, outcome: Outcome, result: Result, progress: Progress) -> None:
    if outcome.code == 0 and not job.missing:
        progress.set(job.name, "finished")
    else:
        result.failed[job.name] = plain(outcome.message) or f"ended with code {outcome.code}"
        progress.set(job.name, "failed")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
