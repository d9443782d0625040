"""Runs the tasks of a grid on Slurm: one array job through submitit, whose tasks are requeued and resume."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from losspool.lab.grids.tasks import Options, Outcome, Task, run_task
from losspool.segmentation.base import UserError, counted, plain, say

_NOTICE = 90
"""Seconds before the time limit at which Slurm signals the job, so that it saves its state."""
_TIMEOUTS = 100
"""How often a run that reaches the time limit is requeued. Each time it has saved what it trained."""
_POLL = 0.1
_ASK_EVERY = 15.0
"""Seconds between two calls of squeue."""
_LOST_AFTER = 60.0
"""Seconds without a result after a job left the queue. A shared file may take that long to appear here."""
_PATIENCE = 60.0
"""Seconds that running jobs have to save their state and end."""


class SlurmExecutor:
    """Submits all tasks as one array job, and waits for their results in the shared folder."""

    def __init__(self, options: Options) -> None:
        _submitit()
        _minutes(options.time)
        self._options = options
        self._jobs: dict[str, Any] = {}
        self._stops: set[Path] = set()
        self._asked = 0.0
        self._absent: dict[str, float] = {}
        """Since when a task's job is not in the queue."""

    def start(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        folder = _folder(tasks[0].log.parent)
        executor = self._submitter(folder, len(tasks))
        self._stops = {task.stop for task in tasks}
        _pickle_by_value()
        before = _files(folder)
        try:
            jobs = executor.submit_array([ArrayTask(task) for task in tasks])
        except RuntimeError as error:  # of submitit: what sbatch said
            _remove(folder, _files(folder) - before)
            *_, reason = str(error).strip().splitlines() or ["no message"]
            raise UserError(f"sbatch refused the grid ({plain(reason)})") from None
        self._jobs = {task.name: job for task, job in zip(tasks, jobs, strict=True)}
        say(_submission(jobs, self._options.jobs, folder))

    def _submitter(self, folder: Path, count: int) -> Any:
        for command in ("sbatch", "srun", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise UserError(f"--executor slurm needs the command {command}: start it on a machine of the cluster")
        executor = _submitit().SlurmExecutor(folder, max_num_timeout=_TIMEOUTS)
        executor.update_parameters(**_parameters(self._options, count))
        return executor

    def ended(self, timeout: float) -> Iterable[Outcome]:
        outcomes = self._outcomes()
        if not outcomes:
            time.sleep(timeout)
        return outcomes

    def _outcomes(self) -> list[Outcome]:
        lost, found = self._lost(), []
        for name, job in list(self._jobs.items()):
            if outcome := _outcome(name, job):
                found.append(outcome)
            elif name in lost:
                message = f"Slurm ended job {job.job_id} without a result; its output is {job.paths.stdout}"
                found.append(Outcome(name, -1, message))
        for outcome in found:
            del self._jobs[outcome.name]
        return found

    def _lost(self) -> set[str]:
        """Tasks whose jobs left the queue some time ago."""
        now = time.monotonic()
        if now - self._asked < _ASK_EVERY or not self._jobs:
            return set()
        self._asked, queue = now, self._queue()
        absent = {name for name, job in self._jobs.items() if queue is not None and job.job_id not in queue}
        self._absent = {name: self._absent.get(name, now) for name in absent}
        return {name for name, since in self._absent.items() if now - since >= _LOST_AFTER}

    def _queue(self) -> set[str] | None:
        """Jobs that wait or run; None if Slurm does not answer for the moment."""
        words = ["squeue", "--me", "--array", "--noheader", "--format=%i"]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        return None if answer.returncode else set(answer.stdout.split())

    def stop(self) -> None:
        for stop in self._stops if self._jobs else ():
            stop.touch()
        self._cancel("--state=PENDING")
        deadline = time.monotonic() + _PATIENCE
        while self._running() and time.monotonic() < deadline:
            time.sleep(0.5)
        if self._running():
            self._cancel()
        self._jobs.clear()

    def _running(self) -> bool:
        queue = self._queue() if self._jobs else set()
        return queue is None or any(job.job_id in queue for job in self._jobs.values())

    def _cancel(self, *options: str) -> None:
        for number in {job.job_id.split("_")[0] for job in self._jobs.values()}:
            subprocess.run(["scancel", *options, number], capture_output=True, check=False)


class ArrayTask:
    """A task as a job of the array. Slurm's signals end the training with a checkpoint before the job is requeued.

    Slurm sends SIGUSR2 ahead of the time limit: submitit calls :meth:`checkpoint` and requeues the job. It sends
    SIGTERM before it kills a job, and requeues it by itself if it was preempted, but not if it was cancelled.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        # Not an Event, whose lock a handler would wait for if it interrupted another one that holds it.
        self._started, self._stopping = False, False
        self._outcome: Outcome | None = None

    def __reduce__(self) -> tuple[type[ArrayTask], tuple[Task]]:
        return ArrayTask, (self.task,)

    def __call__(self) -> Outcome:
        signal.signal(signal.SIGTERM, self._stop)
        # In a thread, because the main thread handles the signals.
        threading.Thread(target=self._run, daemon=True).start()
        self._started = True
        outcome = self._wait()
        while outcome.code and self._stopping:
            time.sleep(_POLL)  # for Slurm to end or requeue the job: a result would be the end of the run
        return outcome

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _run(self) -> None:
        # The training inherits the mask. Slurm signals every process of a job, and these would end it without saving.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
        self._outcome = run_task(self.task, stopping=lambda: self._stopping)

    def _wait(self) -> Outcome:
        while self._outcome is None:  # without a lock, because a signal handler waits as well
            time.sleep(_POLL)
        return self._outcome

    def checkpoint(self) -> Any:
        """Called by submitit in its signal handler: end the training with a checkpoint, and run it again later."""
        self._stop()
        if self._started:
            self._wait()
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(ArrayTask(self.task))


def sbatch_file(options: Options, count: int, logs: Path) -> str:
    """The file that would be submitted for this number of tasks."""

    class Printer(_submitit().SlurmExecutor):  # type: ignore[misc]  # a class by its module's attribute
        @classmethod
        def affinity(cls) -> int:
            return 1  # needs no Slurm on this machine

        def text(self) -> str:
            if count > 1:
                self.parameters["map_count"] = count
            return str(self._make_submission_file_text(self._submitit_command_str, ""))

    printer = Printer(_folder(logs.absolute()))
    printer.update_parameters(**_parameters(options, count))
    return printer.text()


def _parameters(options: Options, count: int) -> dict[str, Any]:
    """Of submitit's SlurmExecutor."""
    minutes = _minutes(options.time)
    return {
        "job_name": "losspool",
        "time": minutes,
        "partition": options.partition,
        "cpus_per_task": options.threads,
        "gpus_per_node": options.gpus_per_run or None,
        "array_parallelism": options.jobs or count,
        "signal_delay_s": min(_NOTICE, 30 * minutes),
        "stderr_to_stdout": True,
        # Since Slurm 22.05, srun does not take the number of CPUs from sbatch.
        "srun_args": [f"--cpus-per-task={options.threads}"],
        "additional_parameters": {"requeue": True},
        "wckey": None,  # submitit's own is "submitit", which a cluster with a list of keys refuses
    }


def _minutes(text: str | None) -> int:
    """Whole minutes of a time in Slurm's forms: minutes, [hours:]minutes:seconds, days-hours[:minutes[:seconds]]."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text or "")
    if match is None:
        raise UserError(f"--time must be minutes, hours:minutes:seconds or days-hours, got {text!r}")
    days, *parts = (None if part is None else int(part) for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is None and len(given) < 3:  # minutes[:seconds]
        given.insert(0, 0)
    hours, minutes, seconds = (*given, 0, 0)[:3]
    total = math.ceil((days or 0) * 1440 + hours * 60 + minutes + seconds / 60)
    if total < 1:
        raise UserError(f"--time must be at least a minute, got {text!r}")
    return total


def _submission(jobs: Sequence[Any], limit: int | None, folder: Path) -> str:
    """What was submitted, and where its output will be. The jobs may wait in the queue for hours."""
    at_a_time = f", {limit} at a time" if limit is not None and limit < len(jobs) else ""
    number = jobs[0].job_id.split("_")[0]
    places = f"logs: {folder.parent}, output of the jobs: {folder}"
    return f"submitted {counted(len(jobs), 'run')} as Slurm job {number}{at_a_time} ({places})"


def _files(folder: Path) -> set[Path]:
    return set(folder.iterdir()) if folder.exists() else set()


def _remove(folder: Path, files: Iterable[Path]) -> None:
    """Delete the files of a submission that was refused, and the folder if it held no others."""
    for path in files:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _outcome(name: str, job: Any) -> Outcome | None:
    """None if there is no result, or none that can be read: a shared disk may fail for a moment."""
    try:
        outcome: Outcome | None = job.result() if job.paths.result_pickle.exists() else None
    except RuntimeError:  # of submitit, with the job's traceback
        return Outcome(name, -1, f"job {job.job_id} failed; its output is {job.paths.stdout}")
    except Exception:  # any: a file that is not whole can make pickle raise anything
        return None
    return outcome


def _folder(logs: Path) -> Path:
    """What submitit writes: the sbatch file, each job's output and result."""
    if "%" in str(logs):
        raise UserError(f"--out {logs.parent}: --executor slurm needs a path without %, which sbatch would replace")
    return logs / "slurm"


def _pickle_by_value() -> None:
    """Give the jobs the code itself: to import losspool would take each of them seconds and half a gigabyte."""
    import cloudpickle  # submitit's

    for module in (__name__, Task.__module__):
        cloudpickle.register_pickle_by_value(sys.modules[module])


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError("--executor slurm needs submitit: pip install 'losspool[slurm]'") from None
    return submitit
