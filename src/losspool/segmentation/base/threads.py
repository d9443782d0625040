"""A parallel ``map`` in threads, with results in order and a bounded look-ahead."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

TICK = 0.2
"""Seconds between calls of ``watch`` while waiting for a result."""
_JOIN_TIMEOUT = 1.0


def in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    ahead: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Like ``map``, but computes up to ``ahead`` items in advance (default: four per core).

    It uses threads, because Pillow and NumPy release the GIL while they work.

    The first exception is raised in place of its result, and items that have not started are dropped. ``watch`` is
    called while waiting for a result, and may raise. Calls that hang are then abandoned. The threads are daemons, so
    that even the exit of the process does not wait for them, as it would for an executor's threads.
    """
    workers = os.cpu_count() or 1
    pending: deque[Future[Result]] = deque()
    tasks: SimpleQueue[tuple[Future[Result], Item] | None] = SimpleQueue()
    threads = [Thread(target=_work, args=(function, tasks), daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for item in items:
            pending.append(Future())
            tasks.put((pending[-1], item))
            if len(pending) > (4 * workers if ahead is None else ahead):
                yield _next_result(pending, watch)
        while pending:
            yield _next_result(pending, watch)
    finally:
        for future in pending:
            future.cancel()
        for _ in threads:
            tasks.put(None)
        deadline = time.monotonic() + _JOIN_TIMEOUT
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))


def _next_result(pending: deque[Future[Result]], watch: Callable[[], None]) -> Result:
    """Wait for the first future, remove it and return its result."""
    while not pending[0].done():
        wait([pending[0]], TICK)
        watch()
    return pending.popleft().result()


def _work(function: Callable[[Item], Result], tasks: SimpleQueue[tuple[Future[Result], Item] | None]) -> None:
    while (task := tasks.get()) is not None:
        future, item = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(item))
            except BaseException as error:
                future.set_exception(error)
        del future, item, task  # else an idle thread would keep the result alive
