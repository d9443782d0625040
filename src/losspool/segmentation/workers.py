"""Loader workers: what they hear, and what becomes of those that die or hang."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from losspool.segmentation.errors import UserError
from losspool.segmentation.orphans import end_with_parent

TICK = 0.5
"""Seconds between two looks at the workers while a batch is waited for."""
_KILLED_WITHIN = 5.0

Batch = TypeVar("Batch")


def settle_in(worker: int) -> None:
    """At a worker's start. It leaves signals to the trainer, and does not outlive it.

    Ctrl-C reaches every process of a terminal, a batch system's SIGTERM every process of the job: the trainer
    hears them and ends its workers in good order. A second SIGTERM is meant for the worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    end_with_parent(signal.SIGKILL)  # where that cannot be, torch's workers look after their parent, every five seconds


def watched(loader: Iterable[Batch], timeout: float) -> Generator[Batch, None, None]:
    """The loader's batches. A worker that died, or a batch that takes longer than ``timeout``, is one sentence.

    However this ends, the workers have ended then: one that hangs would not hear anything but SIGKILL.
    """
    others, handler = active_children(), signal.getsignal(signal.SIGCHLD)
    batches = iter(loader)
    workers = [each for each in active_children() if each not in others]
    if _in_main_thread():
        # torch's handler would raise wherever the trainer happens to be, in the middle of a step too.
        signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
    try:
        while True:
            with _waiting(workers, timeout):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(_KILLED_WITHIN)


@contextmanager
def _waiting(workers: Sequence[BaseProcess], timeout: float) -> Iterator[None]:
    """An alarm clock, because the loader's own timeout ends where a message begins: a worker may stop in one."""
    if not _in_main_thread():  # the only one that signals reach
        yield
        return
    # Ticks are counted, not the time: a job that was suspended must not find it gone.
    waited = 0.0

    def look(*_: object) -> None:
        nonlocal waited
        waited += TICK
        _refuse_dead(workers)
        if timeout and waited >= timeout:
            raise UserError(
                f"no batch came within data.timeout = {timeout:g} seconds: reading the data hangs, "
                "or takes longer than that"
            )

    _refuse_dead(workers)
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
    except (RuntimeError, OSError, EOFError):  # what torch or a pipe says of a worker that is gone
        signal.setitimer(signal.ITIMER_REAL, 0)
        _bury(workers)
        _refuse_dead(workers)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _bury(workers: Sequence[BaseProcess]) -> None:
    """Wait for one that is about to end: its pipes close a moment before."""
    closed = wait([worker.sentinel for worker in workers], TICK)
    for worker in workers:
        if worker.sentinel in closed:
            worker.join()


def _refuse_dead(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        code = worker.exitcode
        # Those that are done end with 0, as soon as there is nothing left to draw.
        if code:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            raise UserError(
                f"a loader worker (process {worker.pid}) {how}; "
                "where memory is short, fewer data.workers or a smaller train.batch may help"
            ) from None


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
