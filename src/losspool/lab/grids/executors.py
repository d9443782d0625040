"""Executors run the tasks of a grid: as processes on this machine, or with Ray on one or more. Results are the same."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from losspool.lab.grids.tasks import Executor, Outcome, Task, run_task
from losspool.segmentation.base import UserError

_PATIENCE = 60.0
"""Seconds that Ray's tasks have to save their state and end."""


def make_executor(kind: str, *, jobs: int, address: str | None) -> Executor:
    """``local`` or ``ray``."""
    if kind == "ray":
        return RayExecutor(address)
    if kind != "local":
        raise UserError(f"--executor must be local or ray, got {kind!r}")
    if address is not None:
        raise UserError(f"--address {address} is for --executor ray")
    return LocalExecutor(jobs, torch.cuda.device_count())


class LocalExecutor:
    """Runs up to ``jobs`` tasks at a time, each in its own process; they share the GPUs."""

    def __init__(self, jobs: int, gpus: int = 0) -> None:
        self._jobs, self._gpus = jobs, gpus
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._stops: set[Path] = set()
        self._workers: list[threading.Thread] = []

    def start(self, tasks: Sequence[Task]) -> None:
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            self._stops.add(task.stop)
            waiting.put(task)
        for slot in range(min(self._jobs, len(tasks))):
            gpu = slot % self._gpus if self._gpus else None
            worker = threading.Thread(target=self._work, args=(waiting, gpu), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _work(self, waiting: queue.SimpleQueue[Task], gpu: int | None) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                task = waiting.get_nowait()
                try:
                    self._ended.put(run_task(task, gpu))
                except Exception as error:  # any: the runner waits for an outcome
                    self._ended.put(Outcome(task.name, -1, f"cannot be started ({error})"))

    def ended(self, timeout: float) -> Iterable[Outcome]:
        with contextlib.suppress(queue.Empty):
            yield self._ended.get(timeout=timeout)
            while True:
                yield self._ended.get_nowait()

    def stop(self) -> None:
        for stop in self._stops:
            stop.touch()
        for worker in self._workers:
            worker.join()


class RayExecutor:
    """Runs tasks with Ray, each with as many CPUs as it has threads. All machines must share the same folders."""

    def __init__(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            import ray
        except ImportError:
            raise UserError("--executor ray needs Ray: pip install 'losspool[ray]'") from None
        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--address {address}: Ray cannot be reached there ({reason})") from None
        self._gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
        self._pending: dict[Any, Task] = {}

    def start(self, tasks: Sequence[Task]) -> None:
        most = max((node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]), default=0)
        for task in tasks:
            if task.threads > most:
                raise UserError(f"--threads {task.threads}: no machine of the cluster has more than {most:g} CPUs")
            remote: Callable[..., Any] = (
                self._ray.remote(run_task)
                .options(num_cpus=task.threads, num_gpus=self._gpus, max_retries=0, name=task.name)
                .remote
            )
            self._pending[remote(task)] = task

    def ended(self, timeout: float) -> Iterable[Outcome]:
        done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=timeout) if self._pending else ([], None)
        for reference in done:
            task = self._pending.pop(reference)
            try:
                yield self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                yield Outcome(task.name, -1, str(error).splitlines()[0])

    def stop(self) -> None:
        for task in self._pending.values():
            task.stop.touch()
        if self._pending:  # running tasks save their state, the others do not begin
            self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=_PATIENCE)
        self._pending.clear()
        self._ray.shutdown()
