"""The log of a run: metrics.jsonl and run.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import losspool
from losspool import __version__
from losspool.segmentation.base import Interrupted, UserError, read_json, replacing, write_json, writing

_BUILT_FROM = Path(losspool.__file__).with_name("_commit.txt")
"""The commit that an installed package was built from, see setup.py."""


class MetricsFile:
    """One JSON object per line, flushed after each line. On resume, a line that a crash left incomplete is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        with writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def sync(self) -> None:
        """Sync to disk, before a checkpoint is written: the lines up to its step must survive with it."""
        if self._path.exists():
            with writing(self._path), open(self._path, "rb+") as file:
                os.fsync(file.fileno())

    def cut(self, step: int, validated: int) -> None:
        """Truncate to ``step``, and validations to step ``validated``, the state of the checkpoint to resume from."""
        limits = {"train": step, "val": validated}
        kept = [entry for entry in read_metrics(self._path) if entry["step"] <= limits.get(entry["split"], step)]
        with replacing(self._path) as partial:
            lines = (json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n" for entry in kept)
            partial.write_text("".join(lines), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read all lines. An incomplete last line is ignored; any other invalid line raises an error with its number."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            if number == len(lines):  # no newline after it: the writer was interrupted
                continue
            raise UserError(f"{path}: line {number} is not JSON") from None
        if not (isinstance(entry, dict) and type(entry.get("step")) is int and isinstance(entry.get("split"), str)):
            raise UserError(f"{path}: line {number} has no step and split")
        entries.append(entry)
    return entries


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")  # Python would accept NaN and Infinity


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_run(seed: int, processes: int) -> dict[str, Any]:
    """Versions, machine and seed, to reproduce a run."""
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
    """Write run.json when a run starts, and update it with the status when the run ends."""
    description = {**about, "start": now(), "status": "running"}
    _write(path, description)

    def ended(status: str) -> None:
        _write(path, {**description, "end": now(), "status": status, **end()})

    try:
        yield
    except BaseException as error:
        with suppress(UserError):  # the disk may be full, but the user needs the error that ended the run
            ended("stopped" if isinstance(error, Interrupted) else "failed")
        raise
    ended("finished")


def status(path: Path) -> Any:
    """The status in run.json: running, stopped, failed or finished. None if the file is corrupt or missing."""
    try:
        return read_json(path).get("status")
    except UserError:
        return None


def _write(path: Path, description: dict[str, Any]) -> None:
    with replacing(path) as partial:
        write_json(partial, json.dumps(description, indent=2, ensure_ascii=False))


def source_commit() -> str | None:
    """The commit of losspool's source, with a + if it has local changes. None if it was built without git history."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:  # installed, perhaps in another repository
        return _BUILT_FROM.read_text(encoding="ascii").strip() if _BUILT_FROM.is_file() else None
    return _git("describe", "--always", "--abbrev=40", "--dirty=+", "--match=")


def _git(*args: str) -> str | None:
    """The output of git in this file's folder. None if it fails or prints nothing."""
    try:
        done = subprocess.run(["git", *args], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
