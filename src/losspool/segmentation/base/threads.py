"""A function over many items in threads, results in order, never more than a few items ahead."""

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
"""Seconds between two calls of ``watch`` while a result is waited for."""
_ENDED_WITHIN = 1.0


def in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    ahead: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Like ``map``, ``ahead`` items before they are asked for (four per core if not given).

    Threads, because Pillow and NumPy let go of the interpreter while they work.

    The first exception is raised where its result would have come, and what had not begun is dropped. ``watch`` is
    called while a result is waited for, and may raise. A call that hangs is left to itself then: not even the end of
    the process waits for it, as it would for an executor's threads.
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
                yield _awaited(pending, watch)
        while pending:
            yield _awaited(pending, watch)
    finally:
        for future in pending:
            future.cancel()
        for _ in threads:
            tasks.put(None)
        deadline = time.monotonic() + _ENDED_WITHIN
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))


def _awaited(pending: deque[Future[Result]], watch: Callable[[], None]) -> Result:
    """The result of the first, which is taken off."""
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
        del future, item, task  # a result belongs to whoever asked for it, not to a thread that waits
