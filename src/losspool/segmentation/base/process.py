"""How a process hears that it should stop, and how it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch

_PR_SET_PDEATHSIG = 1


def end_with_parent(by: signal.Signals) -> None:
    """Have the system send this process a signal when its parent ends, however that happens. Linux alone can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """Somebody asked the run to stop. The state is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


class Interrupt:
    """While active, the first signal is remembered; a second Ctrl-C acts as usual."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def check(self) -> None:
        if self.signal is not None:
            raise Interrupted(self.signal)


@contextmanager
def hard_exit() -> Iterator[None]:
    """Around all that a process does. One of several ends here, at once, instead of being taken apart.

    gloo's threads abort an interpreter that ends before them; and to end them first may take for ever, because one that
    frees a tensor wants the lock that is held by whoever waits for it.
    """
    code: object = 0
    try:
        yield
    except BaseException as error:
        if not _of_several():
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    if _of_several():
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it may be closed, or gone
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _of_several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
