"""Ctrl-C, SIGTERM and a closed terminal as a wish that the training loop hears between two steps."""

from __future__ import annotations

import signal
from types import FrameType


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
