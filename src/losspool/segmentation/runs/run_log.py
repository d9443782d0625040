"""metrics.jsonl and run.json: what a run writes about itself."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from losspool import __version__
from losspool.segmentation.base import Interrupted, UserError, read_json, replacing, write_json


class MetricsFile:
    """One JSON object per line, flushed line by line; a line that a crash tore is cut off on resume."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        with _writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def sync(self) -> None:
        """On disk for certain: a checkpoint must not be older than the lines that belong to it."""
        if self._path.exists():
            with _writing(self._path), open(self._path, "rb+") as file:
                os.fsync(file.fileno())

    def cut(self, step: int, validated: int) -> None:
        """Keep what a run had written at ``step`` whose last validation was at ``validated``."""
        limits = {"train": step, "val": validated}
        kept = [entry for entry in read_metrics(self._path) if entry["step"] <= limits.get(entry["split"], step)]
        with replacing(self._path) as partial:
            lines = (json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n" for entry in kept)
            partial.write_text("".join(lines), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole line; a torn last one is left out, any other that is no metrics is an error with its number."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):
            if number == len(lines):  # no newline after it: the writer was stopped in the middle
                continue
            raise UserError(f"{path}: line {number} is not JSON") from None
        if not (isinstance(entry, dict) and type(entry.get("step")) is int and isinstance(entry.get("split"), str)):
            raise UserError(f"{path}: line {number} has no step and split")
        entries.append(entry)
    return entries


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")  # though Python reads NaN and Infinity


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


class TensorBoard:
    """Writes every number of a line of metrics to TensorBoard, under its split and name."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("train.tensorboard needs TensorBoard: pip install tensorboard") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, entry: dict[str, Any]) -> None:
        for key, value in entry.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{entry['split']}/{key}", value, entry["step"])
        self._writer.flush()


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def describe_run(seed: int, processes: int) -> dict[str, Any]:
    """Where a run runs, for whoever wants to repeat it."""
    return {
        "version": __version__,
        "commit": source_commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "seed": seed,
    }


@contextmanager
def described(path: Path, about: dict[str, Any], end: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """run.json around a run: where it runs, when, and how it ended."""
    description = {**about, "start": now(), "status": "running"}
    _write(path, description)

    def ended(status: str) -> None:
        _write(path, {**description, "end": now(), "status": status, **end()})

    try:
        yield
    except BaseException as error:
        with suppress(UserError):  # the disk may be full: what ended the run is what its user must hear
            ended("stopped" if isinstance(error, Interrupted) else "failed")
        raise
    ended("finished")


def status(path: Path) -> Any:
    """What run.json says: running, stopped, failed or finished; None where it is damaged or missing."""
    try:
        return read_json(path).get("status")
    except UserError:
        return None


def _write(path: Path, description: dict[str, Any]) -> None:
    with replacing(path) as partial:
        write_json(partial, json.dumps(description, indent=2, ensure_ascii=False))


def source_commit() -> str | None:
    """Of losspool's own source, with a + if it was changed; None where it is installed without its history."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # installed into somebody else's repository, whose history this is not
    return _git("describe", "--always", "--abbrev=40", "--dirty=+", "--match=")


def _git(*words: str) -> str | None:
    """What it says in the folder of this file; None if it fails, or says nothing."""
    try:
        done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
