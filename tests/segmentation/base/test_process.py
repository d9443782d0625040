"""How a process exits."""

import os
import sys
import threading

import pytest

from losspool.segmentation.base import hard_exit, leave_behind


class Ended(BaseException):
    """In place of the end of this process."""


def test_a_thread_that_is_left_behind_does_not_abort_the_exit(monkeypatch):
    """An interpreter that shuts down aborts where such a thread prints at that moment: it must not shut down."""

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    stop = threading.Event()
    stuck = threading.Thread(target=stop.wait, daemon=True)
    stuck.start()
    leave_behind([stuck])
    with pytest.raises(Ended, match="2"), hard_exit():
        sys.exit(2)
    stop.set()
    stuck.join()
    with pytest.raises(SystemExit, match="2"), hard_exit():
        sys.exit(2)
