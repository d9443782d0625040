"""Progress of a grid's runs: a live table on a terminal, lines elsewhere."""

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

from losspool.lab.grids.grid import Job
from losspool.segmentation.base import console, plain, say

_TAIL = 1 << 16
_EVERY = 20.0
"""Seconds between two lines about a run, without a terminal."""


@dataclass
class Row:
    """What is known about a run."""

    job: Job
    state: str = "waiting"
    step: int = 0
    miou: float | None = None
    """Of the last validation."""

    def refresh(self) -> None:
        """Read the end of the run's metrics."""
        for line in _last_lines(self.job.folder.metrics):
            if line.get("split") == "val":
                self.miou = line.get("miou")
            self.step = max(self.step, line["step"])

    @property
    def line(self) -> str:
        steps = self.job.config.train.steps
        known = f", val mIoU {self.miou:.4f}" if self.miou is not None else ""
        return f"{self.job.name}: {self.state}, step {self.step} of {steps}{known}"


class Progress:
    """A row for each job; :meth:`update` refreshes those that run."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.rows = {job.name: Row(job) for job in jobs}
        self._live: Live | None = None
        self._last_lines_at = time.monotonic()

    def __enter__(self) -> Progress:
        for row in self.rows.values():
            row.refresh()
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self.table, refresh_per_second=2, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*arguments)

    def set(self, name: str, state: str) -> None:
        """Set the state of a run that begins or ends."""
        row = self.rows[name]
        row.refresh()
        row.state = state
        if self._live is None:
            say(row.line)

    def update(self) -> None:
        running = [row for row in self.rows.values() if row.state == "running"]
        for row in running:
            row.refresh()
        if self._live is None and time.monotonic() - self._last_lines_at > _EVERY:
            self._last_lines_at = time.monotonic()
            for row in running:
                say(row.line)

    def table(self) -> Table:
        """Running jobs first, cut to the height of the terminal."""
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
    """The complete lines at the end of a file that is being written."""
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
            continue  # incomplete
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            found.append(entry)
    return found
