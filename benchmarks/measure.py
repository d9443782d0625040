"""Timing: interleaved rounds, every contestant in a process of its own, and the ratios of each round."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

# Threads spin for a few milliseconds after their last work; the next contestant must not meet them.
_PAUSE = 0.02


class Step(NamedTuple):
    """What is timed: ``make(*arguments)`` gives the function to call, in the process that calls it.

    ``repeats`` calls count as one measurement, for steps too short for the clock.
    """

    make: Callable[..., Callable[[], object]]  # of a module, so that another process finds it
    arguments: tuple[Any, ...]
    repeats: int = 1


class Ratio(NamedTuple):
    """Ours over theirs: the median of the rounds' ratios, its quartiles, and each side's own median."""

    median: float
    lower: float
    upper: float
    ours: float
    theirs: float


class ContestantError(Exception):
    """A contestant could not be run, for the reason given."""


class Contestant:
    """A process that prepares a step, and times one run of it whenever asked.

    In one process they would share the C library's heap: what a loss with many temporaries
    leaves there spares the next one the page faults that are half of its time.
    """

    def __init__(self, step: Step, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, step, threads), daemon=True)
        self._process.start()
        theirs.close()

    def receive(self) -> float:
        """The seconds of the run that was asked for last; the first answer is that of the trial run."""
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise ContestantError("its process died") from None
        if isinstance(answer, str):
            raise ContestantError(answer)
        return answer

    def time(self) -> float:
        with contextlib.suppress(OSError):  # receive() reports a process that is gone
            self._pipe.send(True)
        return self.receive()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the process may be gone already
            self._pipe.send(False)
        self._process.join()


def interleave(
    steps: Mapping[str, Step], rounds: int, threads: int, warmup: int = 2
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of every step in every round, and the reason of each failure.

    A round runs each step once, one after the other, and starts one further on each time.
    """
    contestants: dict[str, Contestant] = {}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    failures: dict[str, str] = {}

    def attempt(name: str, measure: Callable[[], float], keep: bool) -> None:
        try:
            elapsed = measure()
        except ContestantError as error:
            failures[name] = str(error)
            del seconds[name]
        else:
            seconds[name] += [elapsed] if keep else []

    try:
        for name, step in steps.items():
            contestants[name] = Contestant(step, threads)
            attempt(name, contestants[name].receive, keep=False)  # imports, compiles, and reports what fails
        for number in range(-warmup, rounds):
            names = list(seconds)
            first = number % max(len(names), 1)
            for name in names[first:] + names[:first]:
                attempt(name, contestants[name].time, keep=number >= 0)
    finally:
        for contestant in contestants.values():
            contestant.close()
    return seconds, failures


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare two series measured in the same rounds."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    # A single round has no spread.
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Ratio(median, lower, upper, statistics.median(ours), statistics.median(theirs))


def reason(error: BaseException) -> str:
    """An exception in one line, without the folders of this machine: results are published."""
    line = (str(error) or "no message").splitlines()[0]
    return f"{type(error).__name__}: {re.sub(r'/[^ ]*/', '', line)}"


def _serve(pipe: Connection, step: Step, threads: int) -> None:
    try:
        torch.set_num_threads(threads)
        run = step.make(*step.arguments)
        pipe.send(_time(run, 1))
        while pipe.recv():
            time.sleep(_PAUSE)
            pipe.send(_time(run, step.repeats))
    except Exception as error:  # whatever another package raises, the other rows are still worth having
        pipe.send(reason(error))


def _time(run: Callable[[], object], repeats: int) -> float:
    gc.collect()
    gc.disable()
    try:
        total = 0.0
        for _ in range(repeats):
            start = time.perf_counter()
            result = run()
            total += time.perf_counter() - start
            del result  # what a step hands back is freed off the clock, for everyone
        return total / repeats
    finally:
        gc.enable()
