"""Tasks, and how to run one: the same code on every machine.

Clusters run it in processes that hold no more than this file: it imports nothing but Python's own modules.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_POLL = 1.0
"""Seconds between two looks for the stop file, which is on a shared disk if there are several machines."""
_LOCK_PATIENCE = 120
"""Seconds that a training waits for the lock on its folder. NFS keeps the lock of a machine that lost power until its
lease expires: 90 seconds, unless the server is set up otherwise."""


@dataclass(frozen=True)
class Options:
    """The options of ``losspool lab run`` that concern its executor; None leaves the choice to the executor."""

    jobs: int | None = None
    threads: int | None = None
    address: str | None = None
    gpus_per_run: int | None = None
    partition: str | None = None
    time: str | None = None


@dataclass(frozen=True)
class Task:
    """What an executor runs: commands, one after the other, and the log for their output."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    log: Path
    folder: Path
    """The working directory of the commands."""
    stop: Path
    """While this file exists, nothing runs: a signal that reaches every machine of a cluster."""
    threads: int
    """CPU threads of each command. Results depend on it: sums in another order differ in the last digits."""


@dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    name: str
    code: int
    message: str
    """The last line of a failing command's output."""


class Executor(Protocol):
    """Starts tasks and reports how they end."""

    def start(self, tasks: Sequence[Task]) -> None: ...

    def ended(self, timeout: float) -> Iterable[Outcome]:
        """Tasks that ended since the last call; waits up to ``timeout`` seconds for one."""

    def stop(self) -> None:
        """Ask all running tasks to save their state and end, and wait for them."""


def run_task(
    task: Task, gpu: int | None = None, stopping: Callable[[], bool] = lambda: False, launcher: Sequence[str] = ()
) -> Outcome:
    """Run the commands until all are done, one fails, the stop file appears or ``stopping()`` is true.

    ``launcher``: a program with its arguments that starts the command given after them, and exits with its code.
    """
    try:
        return _run(task, gpu, lambda: stopping() or task.stop.exists(), launcher)
    except Exception as error:  # any: the runner waits for an outcome
        return Outcome(task.name, -1, f"cannot be started ({error})")


def _run(task: Task, gpu: int | None, stopped: Callable[[], bool], launcher: Sequence[str]) -> Outcome:
    environment = {"LOSSPOOL_LOCK_PATIENCE": str(_LOCK_PATIENCE), **os.environ, "OMP_NUM_THREADS": str(task.threads)}
    if gpu is not None:
        given = os.environ.get("CUDA_VISIBLE_DEVICES")  # on a shared machine, the GPUs that the user has
        environment["CUDA_VISIBLE_DEVICES"] = given.split(",")[gpu].strip() if given else str(gpu)
    task.log.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    with open(task.log, "ab") as log:
        for command in task.commands:
            if stopped():
                return Outcome(task.name, -1, "stopped")
            log.write(f"$ losspool {shlex.join(command)}\n".encode(errors="surrogateescape"))
            log.flush()
            process = subprocess.Popen(
                [*launcher, sys.executable, "-m", "losspool.cli.job", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=task.folder,
                start_new_session=True,  # Ctrl-C reaches only the runner, which stops its tasks
            )
            code = _wait(process, stopped)
            if code:
                break
    return Outcome(task.name, code, _last_line(task.log) if code else "")


def _wait(process: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> int:
    """Wait for the process to end. When stopped, it saves its state first."""
    try:
        while process.poll() is None and not stopped():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL)
    finally:
        if process.stdin:
            process.stdin.close()  # asks losspool.cli.job to stop, behind a launcher too
        code = process.wait()
    return code


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
