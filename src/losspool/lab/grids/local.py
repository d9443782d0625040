"""The executor of this machine: runs the tasks of a grid as its processes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from losspool.lab.grids.tasks import Outcome, Task, run_task


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
                self._ended.put(run_task(waiting.get_nowait(), gpu))

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
