"""How far the runs of a grid are: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from losspool.lab.grid import Job
from losspool.segmentation.base import console, plain, say

_TAIL = 1 << 16
_EVERY = 20.0
"""Seconds between two lines about a run, where there is no terminal."""


@dataclass
class Row:
    """A run, as far as is known."""

    job: Job
    state: str = "waiting"
    step: int = 0
    miou: float | None = None
    """Of the last validation."""

    def look(self) -> None:
        """Read the end of the run's metrics."""
        for line in _last_lines(self.job.folder.metrics):
            if line.get("split") == "val":
                self.miou = line.get("miou")
            self.step = max(self.step, line["step"])

    @property
    def words(self) -> str:
        steps = self.job.config.train.steps
        known = f", val mIoU {self.miou:.4f}" if self.miou is not None else ""
        return f"{self.job.name}: {self.state}, step {self.step} of {steps}{known}"


class Progress:
    """The rows of all jobs; :meth:`update` looks at those that run."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.rows = {job.name: Row(job) for job in jobs}
        self._live: Live | None = None
        self._told = time.monotonic()

    def __enter__(self) -> Progress:
        for row in self.rows.values():
            row.look()
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self.table, refresh_per_second=2, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*arguments)

    def set(self, name: str, state: str) -> None:
        """A run begins or ends."""
        row = self.rows[name]
        row.look()
        row.state = state
        if self._live is None:
            say(row.words)

    def update(self) -> None:
        running = [row for row in self.rows.values() if row.state == "running"]
        for row in running:
            row.look()
        if self._live is None and time.monotonic() - self._told > _EVERY:
            self._told = time.monotonic()
            for row in running:
                say(row.words)

    def table(self) -> Table:
        """Those that run first; of many, as many as the terminal is high."""
        order = {"running": 0, "failed": 1, "stopped": 1, "waiting": 2, "finished": 3}
        rows = sorted(self.rows.values(), key=lambda row: order.get(row.state, 4))
        room = max(console.height - 4, 4)
        table = Table(box=None, pad_edge=False)
        for place, header in enumerate(("run", "state", "step", "val mIoU")):
            table.add_column(header, justify="right" if place > 1 else "left", no_wrap=True)
        for row in rows[:room]:
            miou = "" if row.miou is None else f"{100 * row.miou:.2f}"
            table.add_row(Text(plain(row.job.name)), row.state, f"{row.step} / {row.job.config.train.steps}", miou)
        done = sum(row.state == "finished" for row in rows)
        table.caption = f"{done} of {len(rows)} runs finished"
        return table


def _last_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines at the end of a file that somebody is writing to."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _TAIL, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut in the middle, by us or by the writer
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            found.append(entry)
    return found
