"""A task, and how it is run: the same code wherever that happens to be."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from losspool.segmentation.base import plain

_POLL = 0.1
"""Seconds between two looks at a process."""


@dataclass(frozen=True)
class Task:
    """A job as an executor sees it: commands to run one after the other, and where their words go."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    log: Path
    folder: Path
    """Where the commands run: paths in them are relative to it."""
    stop: Path
    """While a file of this name is there, nothing runs: the one word that reaches every machine of a cluster."""
    threads: int
    """Of the CPU, for each command. Sums in another order end in other digits, so results depend on it."""


@dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    name: str
    code: int
    message: str
    """The last thing that a failing command said."""


class Executor(Protocol):
    """Starts tasks, and tells how they end."""

    def start(self, tasks: Sequence[Task]) -> None: ...

    def ended(self, timeout: float) -> Iterable[Outcome]:
        """Those that ended since the last call; waits at most ``timeout`` seconds for one."""

    def stop(self) -> None:
        """Ask everything that runs to save its state and end, and wait for it."""


def run_task(task: Task, gpu: int | None = None) -> Outcome:
    """Run the commands to the end, to the first that fails, or until somebody asks to stop."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(task.threads)}
    if gpu is not None:
        given = os.environ.get("CUDA_VISIBLE_DEVICES")  # on a machine that is shared, the user's own ones
        environment["CUDA_VISIBLE_DEVICES"] = given.split(",")[gpu].strip() if given else str(gpu)
    task.log.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    with open(task.log, "ab") as log:
        for command in task.commands:
            if task.stop.exists():
                return Outcome(task.name, -1, "stopped")
            log.write(f"$ losspool {shlex.join(command)}\n".encode(errors="surrogateescape"))
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "losspool.cli.job", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=task.folder,
                start_new_session=True,  # Ctrl-C is for the runner, which stops its tasks in order
            )
            code = _wait(process, task.stop)
            if code:
                break
    return Outcome(task.name, code, _last_line(task.log) if code else "")


def _wait(process: subprocess.Popen[bytes], stop: Path) -> int:
    """For its end. Asked to stop, it saves its state first."""
    try:
        while process.poll() is None and not stop.exists():
            time.sleep(_POLL)
    finally:
        if process.poll() is None:
            process.terminate()
        code = process.wait()
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
    return code


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return plain(lines[-1]) if lines else "it said nothing"
