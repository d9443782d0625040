"""How a process exits."""

import os
import sys
import threading

import pytest

from losspool.segmentation.base import hard_exit, leave_behind, process


class Ended(BaseException):
    """In place of the end of this process."""


def test_a_thread_that_is_left_behind_does_not_abort_the_exit(monkeypatch):
    """A thread that prints while the interpreter shuts down aborts it, so the process must end without a shutdown."""

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(process, "_left_behind", [])
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


def test_a_thread_that_ends_meanwhile_does_not_turn_a_failure_into_a_success(monkeypatch):
    def end(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    answers = iter([True, False])
    monkeypatch.setattr(process, "_has_threads_left", lambda: next(answers))
    with pytest.raises(Ended, match="2"), hard_exit():
        sys.exit(2)
