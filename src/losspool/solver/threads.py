"""Spread work over CPU threads that each compute alone.

Torch splits every operation on more than 32,768 numbers between its OpenMP threads, and then waits for the
slowest of them. The loss takes hundreds of short operations. Beside another busy process, each wait may last
until the scheduler's next tick: 2×19×550×550 logits took 20 times as long as on an idle machine. Here a thread
takes a block through all operations by itself, and threads wait for each other once at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# Torch itself does not split operations on fewer numbers.
_SMALL = 32_768
# A second thread is worth waking for this many: threads take turns in Python between two operations.
_PER_THREAD = 1 << 18


def spread(start: Callable[[], Callable[[Item], Result]], items: Sequence[Item], numbers: int) -> list[Result]:
    """Return the results of all items, in order. ``numbers`` is how many numbers they hold together.

    Each thread calls ``start`` once, for buffers of its own, and the function that it returns on one item after
    the other. The results must not depend on which thread computes them.
    """
    threads = torch.get_num_threads()
    if threads == 1 or numbers <= _SMALL or not torch.backends.openmp.is_available():
        function = start()
        return [function(item) for item in items]
    results: list[Result | None] = [None] * len(items)
    turn, inference = count(), torch.is_inference_mode_enabled()

    def run() -> None:
        # Grad mode and inference mode belong to a thread.
        with torch.inference_mode(inference), torch.no_grad():
            function = start()
            while (index := next(turn)) < len(items):
                results[index] = function(items[index])

    wanted = min(threads, len(items), max(numbers // _PER_THREAD, 1))
    runners = []
    try:
        for _ in range(wanted):
            runners.append(_pool(threads).submit(run))
    except RuntimeError:  # Python ends: the main thread is done, and this one, or a function at exit, still computes
        run()
    errors = [error for error in [runner.exception() for runner in runners] if error is not None]
    if errors:
        raise errors[0]
    return results  # type: ignore[return-value]


_lock = threading.Lock()
_executor: tuple[int, ThreadPoolExecutor] | None = None


def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads in which torch does not split operations."""
    global _executor
    with _lock:
        if _executor is None or _executor[0] < threads:
            pool = ThreadPoolExecutor(threads, "losspool", initializer=_compute_alone)
            ready = threading.Barrier(threads + 1)
            for _ in range(threads):
                pool.submit(ready.wait)  # starts them all now
            ready.wait()
            # Each thread has a setting of its own, but the last one set is the default of threads that start later.
            torch.set_num_threads(threads)
            _executor = threads, pool
        return _executor[1]


def _compute_alone() -> None:
    torch.get_num_threads()  # a thread takes the default when it first asks, and that would undo the next line
    torch.set_num_threads(1)


def _forget() -> None:
    """A forked process has none of the threads, and perhaps a lock that one of them held."""
    global _executor, _lock
    _executor, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
