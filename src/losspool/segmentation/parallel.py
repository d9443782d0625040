"""A function over many items in threads, results in order, never more than a few items ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int | None = None
) -> Iterator[Result]:
    """Like ``map``, ``ahead`` items before they are asked for (four per core if not given).

    Threads, because Pillow and NumPy let go of the interpreter while they work.

    The first exception is raised where its result would have come, and what had not begun is dropped.
    """
    workers = os.cpu_count() or 1
    pending: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(workers)
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) > (4 * workers if ahead is None else ahead):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)
