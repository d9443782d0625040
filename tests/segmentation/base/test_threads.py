"""Threads over many items: in order, bounded, and never in the way of an exit."""

import threading
import time

import pytest

from losspool.segmentation.base.threads import in_threads
from real_runs import Processes, outcome, until


def test_results_come_in_order():
    pauses = [0.02 * (7 * number % 5) for number in range(20)]
    assert list(in_threads(lambda pause: (time.sleep(pause), pause)[1], pauses)) == pauses


def test_no_more_than_a_few_are_made_ahead():
    begun = []
    results = in_threads(begun.append, range(50), ahead=3)
    next(results)
    time.sleep(0.1)
    assert len(begun) <= 4


def test_an_exception_comes_in_its_place_and_the_rest_is_dropped():
    begun = []

    def function(number):
        begun.append(number)
        if number == 3:
            raise ValueError(number)
        return number

    results = in_threads(function, range(1000), ahead=5)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(results)
    assert len(begun) <= 9


def test_no_thread_is_left():
    before = threading.active_count()
    results = in_threads(str, range(100))
    next(results)
    results.close()
    assert until(lambda: threading.active_count() == before, 5)


def test_one_that_hangs_can_be_left():
    release, began = threading.Event(), time.monotonic()

    def watch():
        if time.monotonic() - began > 0.5:
            raise InterruptedError

    results = in_threads(lambda _: release.wait(60), range(9), watch=watch)
    with pytest.raises(InterruptedError):
        next(results)
    assert time.monotonic() - began < 10
    release.set()


HANGS = """
import threading
from losspool.segmentation.base.threads import in_threads
def watch(): raise SystemExit("left")
next(in_threads(lambda _: threading.Event().wait(), range(9), watch=watch))
"""


def test_nor_does_the_end_of_the_process_wait_for_it():
    with Processes() as processes:
        assert outcome(processes.fork("plain_python", "-c", HANGS)) == (1, "left\n")
