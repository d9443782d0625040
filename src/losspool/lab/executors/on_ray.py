"""Ray: one machine, or a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from losspool.lab.executors.task import Outcome, Task, run_task
from losspool.segmentation.base import UserError

_PATIENCE = 60.0
"""Seconds that tasks have to end in good order."""


class RayExecutor:
    """Tasks of Ray, each with as many CPUs as it has threads. All machines must see the same folders."""

    def __init__(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        try:
            import ray
        except ImportError:
            raise UserError("--executor ray needs Ray: pip install 'losspool[ray]'") from None
        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            told = str(error).splitlines()[0]
            raise UserError(f"--address {address}: Ray cannot be reached there ({told})") from None
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
        if self._pending:  # those that run save their state, the others do not begin
            self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=_PATIENCE)
        self._pending.clear()
        self._ray.shutdown()
