"""What a run shows: a bar on a terminal, and lines where there is none."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from losspool.segmentation.base import console, progress_bar, say

EVERY = 30.0
"""Seconds between lines without a terminal."""
STAT = "/proc/stat"

Show = Callable[[dict[str, Any]], None]


@contextmanager
def shown_progress(steps: int, done: int, visible: bool) -> Iterator[Show]:
    """Show the progress of a run with ``done`` of its ``steps``. Yields a function that takes each line of metrics."""
    began, last = time.monotonic(), -EVERY

    def words(entry: dict[str, Any]) -> str:
        return f"loss {entry['loss']:.4f}, train mIoU {entry['miou']:.3f}"

    with progress_bar() as bar:
        task = bar.add_task("training", total=steps, completed=done, visible=visible)

        def show(entry: dict[str, Any]) -> None:
            nonlocal last
            step, now = entry["step"], time.monotonic() - began
            bar.update(task, completed=step, description=words(entry))
            if visible and not console.is_terminal and (now - last >= EVERY or step == steps):
                last = now
                pace = now / (step - done)
                left = f", {in_words(pace * (steps - step))} left" if step < steps else ""
                say(f"step {step} of {steps}: {words(entry)}, {pace:.3g} s per step{left}")

        yield show


def in_words(seconds: float) -> str:
    """A duration with two units at most.

    >>> [in_words(each) for each in (7.4, 754, 7500, 190000)]
    ['7 s', '12 min 34 s', '2 h 5 min', '2 d 4 h']
    """
    left = round(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        count, left = divmod(left, size)
        parts.append((count, name))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = [part for part in parts[first : first + 2] if part[0] or len(parts) == first + 1]
    return " ".join(f"{count} {name}" for count, name in shown)


def class_line(names: Sequence[str], ious: Sequence[float | None]) -> str:
    """The IoU of each class after a validation."""
    return "  " + ", ".join(
        f"{name} {'–' if iou is None else f'{iou:.3f}'}" for name, iou in zip(names, ious, strict=True)
    )


def say_scores(step: int, summary: dict[str, Any], best: dict[str, Any], names: Sequence[str]) -> None:
    """Print the scores of a validation; on a terminal, of each class as well."""
    say(f"step {step}: val mIoU {summary['miou']:.4f}, best {best['miou']:.4f} at step {best['step']}")
    if console.is_terminal:
        say(class_line(names, summary["iou"]))


def resume_command(recipe: str, overrides: Sequence[str], folder: Path, threads: int | None, processes: int) -> str:
    """The command that resumes a run."""
    start = ["torchrun", "…", "-m", "losspool"] if processes > 1 else ["losspool"]  # torchrun's options are unknown
    more = ["--threads", threads] if threads is not None else []
    words = (recipe, *overrides, "--out", folder, "--resume", *more)
    return " ".join([*start, "train", *(shlex.quote(str(word)) for word in words)])


def cores_hint(threads: int) -> str | None:
    """A hint if this process's threads and the busy ones of others need more cores than there are.

    A thread without a core of its own holds up all others of its operation: two may be slower than one. Call it before
    this process starts to work.
    """
    cores, busy = os.cpu_count() or 1, _busy_cores() if threads > 1 else 0.0
    if round(busy) + threads <= cores or round(busy) == 0:
        return None
    free = max(cores - round(busy), 1)
    return (
        f"hint: other processes keep about {busy:.1f} of the {cores} cores busy; "
        f"{threads} threads may be slower than --threads {free}"
    )


def _busy_cores(seconds: float = 0.2) -> float:
    """How many cores work while this process sleeps; 0 where the system does not say."""
    if not os.path.exists(STAT):
        return 0.0
    before = _core_times()
    time.sleep(seconds)
    idle, total = (after - first for after, first in zip(_core_times(), before, strict=True))
    return (os.cpu_count() or 1) * (1 - idle / total) if total > 0 else 0.0


def _core_times() -> tuple[int, int]:
    """Idle time and all time of the cores so far, of Linux."""
    with open(STAT, encoding="ascii") as file:
        times = [int(text) for text in file.readline().split()[1:9]]
    return times[3] + times[4], sum(times)  # idle, and waiting for a disk
