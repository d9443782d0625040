"""Loader workers: what they hear, and what becomes of those that die or hang."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from torch.utils.data.dataloader import _BaseDataLoaderIter

from losspool.segmentation.base import UserError, end_with_parent

TICK = 0.5
"""Seconds between two looks at the workers while a batch is waited for."""
_KILLED_WITHIN = 5.0
_PINNED_WITHIN = 6.0  # torch's thread that pins memory looks up every five seconds

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
    try:
        batches = iter(loader)
    except (OSError, RuntimeError) as error:
        _end([each for each in active_children() if each not in others])  # those that had been started
        _forget(error)
        raise UserError(f"the data.workers cannot be started ({_first_line(error)})") from error
    workers = [each for each in active_children() if each not in others]
    if _in_main_thread():
        # torch's handler would raise wherever the trainer happens to be, in the middle of a step too.
        signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
    with _silent_pinning(batches, workers):
        try:
            while True:
                with _waiting(workers, timeout):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            _end(workers)
            if workers:
                _tidy_up(batches)


def _forget(error: BaseException) -> None:
    """Torch's half-made iterator would stumble over what it lacks when it goes, with a traceback of its own."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        made = frame.f_locals.get("self")
        if isinstance(made, _BaseDataLoaderIter):
            made._shutdown = True  # type: ignore[attr-defined]  # of the one with workers


def _end(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(_KILLED_WITHIN)


@contextmanager
def _silent_pinning(batches: Any, workers: Sequence[BaseProcess]) -> Iterator[None]:
    """Torch's thread that pins memory stumbles over a worker's death, too: its traceback would hide the sentence."""
    thread, tell = getattr(batches, "_pin_memory_thread", None), threading.excepthook

    def hear(told: threading.ExceptHookArgs) -> None:
        if told.thread is not thread or not wait([worker.sentinel for worker in workers], TICK):
            tell(told)

    threading.excepthook = hear
    try:
        yield
    finally:
        threading.excepthook = tell


def _tidy_up(batches: Any) -> None:
    """As torch does, but for locks that a worker may have held when it was killed."""
    thread = getattr(batches, "_pin_memory_thread", None)
    # At the end of all batches torch has done it, in good order.
    if thread is not None and (thread.is_alive() or not batches._shutdown):
        _stop_pinning(batches)
    batches._workers_done_event = threading.Event()  # they are done, and nobody is left to hear it
    batches._shutdown_workers()  # at once: whoever keeps the exception that ends all this keeps the loader, too


def _stop_pinning(batches: Any) -> None:
    """End torch's thread that pins memory, once nobody sends it anything more.

    Torch would wait for it without bound, and it for the rest of a message whose sender was killed, or for a lock that
    the sender had. Ours is the last open end of their pipe: when it is closed, the thread finds that nothing will come.
    """
    batches._pin_memory_thread_done_event.set()
    batches._worker_result_queue._writer.close()
    batches._pin_memory_thread.join(_PINNED_WITHIN)
    del batches._pin_memory_thread  # what is not there, torch leaves alone


class _RungError(BaseException):
    """The alarm's sentence, past all who would take it for a fault of the file that they were reading."""


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
        try:
            _refuse_dead(workers)
            if timeout and waited >= timeout:
                raise UserError(
                    f"no batch came within data.timeout = {timeout:g} seconds: reading the data hangs, "
                    "or takes longer than that, or the shared memory has no room for a batch"
                )
        except UserError as error:
            signal.setitimer(signal.ITIMER_REAL, 0)  # no second one while this one is on its way
            raise _RungError(str(error)) from None

    _refuse_dead(workers)
    with _alarm(look) as disarm:
        try:
            yield
        except _RungError as rung:
            raise UserError(str(rung)) from None
        except (RuntimeError, OSError, EOFError) as error:  # what torch or a pipe says of a worker that is gone
            disarm()
            _bury(workers)
            _refuse_dead(workers)
            if workers:
                raise UserError(f"the data.workers cannot be reached ({_first_line(error)})") from error
            raise


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


@contextmanager
def _alarm(ring: Callable[..., None]) -> Iterator[Callable[[], None]]:
    """Rings at every tick, until it is disarmed. A timer that somebody else had set goes on afterwards."""
    armed = True

    def disarm() -> None:
        nonlocal armed
        armed = False  # one that is under way already must not ring in the midst of what follows
        signal.setitimer(signal.ITIMER_REAL, 0)

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, lambda *_: ring() if armed else None)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        try:
            yield disarm
        finally:
            disarm()
    finally:
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        if delay:
            signal.setitimer(signal.ITIMER_REAL, max(delay - (time.monotonic() - began), 1e-6), interval)


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
            how = f"was killed by {_name(-code)}" if code < 0 else f"ended with code {code}"
            raise UserError(
                f"a loader worker (process {worker.pid}) {how}; "
                "where memory is short, fewer data.workers or a smaller train.batch may help"
            ) from None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time signals only the first and the last have one
        return f"signal {number}"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
