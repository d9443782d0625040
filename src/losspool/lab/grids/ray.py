"""Runs the tasks of a grid with Ray: on this machine, or on all machines of a cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from losspool.lab.grids.tasks import Options, Outcome, Task, run_task
from losspool.segmentation.base import UserError, first_line, plain

_PATIENCE = 60.0
"""Seconds that tasks have to save their state and end, and a machine to answer."""
_RETRIES = 100
"""How often a task is started again after its machine was lost. Bounded, because the task may be the cause."""
_LAUNCHER = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""A process between Ray's and the training. When ``losspool lab run`` is killed, Ray kills its own processes and their
direct children; the training, one further down, has time to save its state."""


class RayExecutor:
    """Runs each task with as many CPUs as it has threads; on another machine if its own is lost, where it resumes."""

    def __init__(self, options: Options) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            import ray
        except ImportError:
            raise UserError("--executor ray needs Ray: pip install 'losspool[ray]'") from None
        self._ray = ray
        for module in (__name__, Task.__module__):
            # Ray's processes get the code itself: to import losspool would take each seconds and half a gigabyte.
            ray.cloudpickle.register_pickle_by_value(sys.modules[module])
        address = options.address
        try:
            # Without an address Ray would join any cluster that it finds on this machine.
            where = address or "local"
            ray.init(address=where, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:  # the last: a wrong token
            place = f"--address {address}: Ray cannot be reached there" if address else "Ray cannot be started here"
            raise UserError(f"{place} ({first_line(error)})") from None
        has_gpus = ray.cluster_resources().get("GPU", 0) >= 1
        self._gpus = int(has_gpus) if options.gpus_per_run is None else options.gpus_per_run
        self._limit = options.jobs
        """Runs at a time; None if only the machines limit them."""
        self._waiting: deque[Task] = deque()
        self._pending: dict[Any, Task] = {}
        self._marker: Path | None = None

    def start(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        self._check_resources(max(task.threads for task in tasks))
        self._marker = tasks[0].stop.with_name(f".shared-{secrets.token_hex(8)}")
        self._marker.touch()
        self._check_machines(tasks[0], self._marker)
        self._waiting.extend(tasks)
        self._submit()

    def _submit(self) -> None:
        """Give Ray the next tasks. A task that Ray starts again after the loss of its machine stays pending."""
        while self._waiting and (self._limit is None or len(self._pending) < self._limit):
            task = self._waiting.popleft()
            remote: Callable[..., Any] = (
                self._ray.remote(_run_if_shared)
                .options(num_cpus=task.threads, num_gpus=self._gpus, max_retries=_RETRIES, name=task.name)
                .remote
            )
            self._pending[remote(task, self._marker)] = task

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _check_resources(self, threads: int) -> None:
        """Ray would wait forever for a machine that is large enough."""
        resources = [node["Resources"] for node in self._nodes()]
        most = max((each.get("CPU", 0) for each in resources), default=0)
        if threads > most:
            raise UserError(f"--threads {threads}: no machine of the cluster has more than {most:g} CPUs")
        gpus = max(each.get("GPU", 0) for each in resources if each.get("CPU", 0) >= threads)
        if self._gpus > gpus:
            raise UserError(
                f"--gpus-per-run {self._gpus}: no machine with {threads} or more CPUs has more than {gpus:g} GPUs"
            )

    def _check_machines(self, task: Task, marker: Path) -> None:
        """A machine without the shared folders would train for itself, and its results would be lost."""
        here = self._ray.get_runtime_context().get_node_id()
        ask = self._ray.remote(_problem)
        for node in self._nodes():
            if node["NodeID"] == here or not node["Resources"].get("CPU"):
                continue
            there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = node["NodeManagerHostname"]
            try:
                answer = ask.options(num_cpus=0, scheduling_strategy=there).remote(task, marker)
                problem = self._ray.get(answer, timeout=_PATIENCE)
            except self._ray.exceptions.RayError as error:
                problem = f"cannot run losspool ({plain(str(error).strip().splitlines()[-1])})"
            if problem:
                raise UserError(f"machine {name} of the cluster {problem}")

    def ended(self, timeout: float) -> Iterable[Outcome]:
        done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=timeout) if self._pending else ([], None)
        ended = [(reference, self._pending.pop(reference)) for reference in done]
        self._submit()
        for reference, task in ended:
            try:
                yield self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                yield Outcome(task.name, -1, str(error).splitlines()[0])

    def stop(self) -> None:
        self._waiting.clear()
        for task in self._pending.values():
            task.stop.touch()
        if self._pending:  # running tasks save their state, the others do not begin
            self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=_PATIENCE)
        self._pending.clear()
        self._ray.shutdown()
        if self._marker is not None:
            with contextlib.suppress(OSError):
                self._marker.unlink()


def _problem(task: Task, marker: Path) -> str:
    """What a machine lacks for the task; empty if nothing. This function is sent to it, and does not need losspool."""
    if importlib.util.find_spec("losspool") is None:
        return "cannot run losspool (No module named 'losspool')"
    if not marker.exists():
        return f"does not see {marker.parent}: name a folder with --out that all machines share"
    if not task.folder.exists():
        return f"does not see the working directory {task.folder}: start from a folder that all machines share"
    return ""


def _run_if_shared(task: Task, marker: Path) -> Outcome:
    """Run the task; a machine that joined the cluster later may not see the folders."""
    if problem := _problem(task, marker):
        return Outcome(task.name, -1, f"its machine {problem}")
    return run_task(task, launcher=_LAUNCHER)
