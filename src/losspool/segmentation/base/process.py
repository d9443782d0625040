"""Signals that ask a process to stop, and how the process exits."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch

_PR_SET_PDEATHSIG = 1


def end_with_parent(by: signal.Signals) -> None:
    """Have the kernel signal this process when its parent ends, however it ends. Works on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)


class Interrupted(Exception):  # noqa: N818 (not an error)
    """A signal asked the run to stop. Its state is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


class Interrupt:
    """While active, record the first SIGINT, SIGTERM or SIGHUP. A second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            self._before[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # returned by signal.signal

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def check(self) -> None:
        if self.signal is not None:
            raise Interrupted(self.signal)


_left_behind: list[threading.Thread] = []


def leave_behind(threads: Iterable[threading.Thread]) -> None:
    """Register threads that may never end, for ``hard_exit``."""
    _left_behind[:] = [thread for thread in (*_left_behind, *threads) if thread.is_alive()]


@contextmanager
def hard_exit() -> Iterator[None]:
    """Wrap everything a process does. End with ``os._exit`` if threads may still be running.

    An interpreter that shuts down first can be aborted by gloo's threads, or by a thread that prints a traceback at
    that moment. Joining them first may deadlock: a thread that frees a tensor needs the lock that the joining thread
    holds.
    """
    code: object = 0
    hard = False  # asked once after an error: a thread that ends in the meantime must not turn it into a success
    try:
        yield
    except BaseException as error:
        hard = _has_threads_left()
        if not hard:
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        _discard_unwritable_messages()
    if hard or _has_threads_left():
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it may be closed, or its reader gone
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _discard_unwritable_messages() -> None:
    """Python exits with code 120 if standard error cannot be flushed, whatever the command returned."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except ValueError:
        pass  # it is closed


def _has_threads_left() -> bool:
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return distributed or any(thread.is_alive() for thread in _left_behind)
