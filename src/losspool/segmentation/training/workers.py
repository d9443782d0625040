"""Loader workers: their signal handling, and a one-sentence error if one dies or hangs."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from losspool.segmentation.base import UserError, end_with_parent, first_line, leave_behind

TICK = 0.5
"""Seconds between checks of the workers while waiting for a batch."""
GRACE = 2.0
"""Seconds that workers have to exit before they are killed."""

Batch = TypeVar("Batch")


def init_worker(worker: int) -> None:
    """Leave signals to the trainer, and end with it.

    Ctrl-C reaches every process of a terminal, and a batch system's SIGTERM every process of the job. The trainer
    handles them and shuts down its workers in order. A second SIGTERM is meant for the worker itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    end_with_parent(signal.SIGKILL)  # on other systems, torch's workers check for their parent every five seconds


def watched(loader: Iterable[Batch], timeout: float) -> Generator[Batch, None, None]:
    """Yield the loader's batches. Raises ``UserError`` if a worker dies or a batch takes longer than ``timeout``.

    However this generator ends, its workers have ended too.
    """
    others, threads, handler = active_children(), threading.enumerate(), signal.getsignal(signal.SIGCHLD)
    try:
        batches = [iter(loader)]  # in a list, so that another thread can drop the last reference
    except (OSError, RuntimeError) as error:
        _kill([each for each in active_children() if each not in others])
        with _no_unraisable():
            traceback.clear_frames(error.__traceback__)  # drops torch's incomplete iterator, whose __del__ fails
        raise UserError(f"the data.workers cannot be started ({first_line(error)})") from error
    workers = [each for each in active_children() if each not in others]
    started = [each for each in threading.enumerate() if each not in threads]  # one may pin memory
    if _in_main_thread():
        # torch's handler would raise wherever the trainer happens to be, even in the middle of a step.
        signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
    try:
        while True:
            with _worker_errors(workers, timeout):
                batch = next(batches[0], None)
            if batch is None:
                return
            yield batch
    finally:
        leave_behind(started)
        _shut_down(batches, workers)


class _StalledError(BaseException):
    """Not an Exception, so that no handler mistakes it for an error in the file being read."""


@contextmanager
def _worker_errors(workers: Sequence[BaseProcess], timeout: float) -> Iterator[None]:
    """Wrap the wait for a batch: worker failures become a ``UserError``."""
    waited = 0.0

    def look() -> None:
        # Count ticks, not time: a job that was suspended must not time out when it continues.
        nonlocal waited
        waited += TICK
        problem = _describe_death(workers)
        if problem is None and timeout and waited >= timeout:
            problem = (
                f"no batch came within data.timeout = {timeout:g} seconds: reading the data hangs "
                "or is slower than that, or the shared memory is too small for a batch"
            )
        if problem is not None:
            raise _StalledError(problem)

    try:
        with _every_tick(look):
            yield
    except _StalledError as error:
        traceback.clear_frames(error.__traceback__)  # they hold torch's iterator
        raise UserError(str(error)) from None
    except (RuntimeError, OSError, EOFError) as error:  # torch or a pipe lost a worker
        if not workers or str(error).startswith("Caught "):  # torch's word for what the dataset's own code raised
            raise
        closed = wait([worker.sentinel for worker in workers], TICK)
        for worker in workers:
            if worker.sentinel in closed:
                worker.join(TICK)  # its pipes close a moment before it ends
        problem = _describe_death(workers) or f"the data.workers cannot be reached ({first_line(error)})"
        traceback.clear_frames(error.__traceback__)
        raise UserError(problem) from error


@contextmanager
def _every_tick(look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` every ``TICK`` seconds from SIGALRM, until it raises or the block ends.

    The loader's own timeout covers neither a read in this process nor a worker that stops while sending a batch.
    """
    if not _in_main_thread():  # Python handles signals only there
        yield
        return

    def ring(*_: object) -> None:
        try:
            look()
        except BaseException:
            signal.setitimer(signal.ITIMER_REAL, 0)  # no second alarm while handling this one
            raise

    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def _shut_down(batches: list[Iterator[Batch]], workers: Sequence[BaseProcess]) -> None:
    """Drop torch's iterator, which ends its workers. In a thread: it may wait forever for a dead worker's lock."""
    if not workers:
        return
    orderly = threading.Thread(target=batches.clear, daemon=True)
    orderly.start()
    leave_behind([orderly])
    orderly.join(GRACE)
    _kill(workers)
    orderly.join(GRACE)


def _kill(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(GRACE)


@contextmanager
def _no_unraisable() -> Iterator[None]:
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _describe_death(workers: Sequence[BaseProcess]) -> str | None:
    """Describe the first worker that did not exit normally."""
    for worker in workers:
        if code := worker.exitcode:  # 0 is a worker that has finished its work
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
            return (
                f"a loader worker (process {worker.pid}) {how}; if memory is short, reduce data.workers or train.batch"
            )
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time signals, only the first and the last have names
        return f"signal {number}"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
