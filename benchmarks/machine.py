"""What a result was measured on: machine, versions, commit, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

import torch

import losspool

ROOT = Path(__file__).resolve().parent.parent
# A run writes these itself: they say nothing about the code that was measured.
_WRITTEN = ("benchmarks/results*", "benchmarks/README.md")
TOLERABLE_SHARE = 0.05
_PACKAGES = ("kornia", "monai", "segmentation-models-pytorch")


def describe() -> dict[str, str]:
    """One line of text per fact, in the order in which they are shown."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "cpu": f"{cpu_model()}, {os.cpu_count()} cores",
        "threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def commit() -> str:
    """The commit's hash, with ``-dirty`` where the tree differs from it."""
    try:
        revision = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in _WRITTEN))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{revision}-dirty" if changes else revision


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__, "losspool": losspool.__version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Bystanders:
    """How much of the processors other processes took since this was made.

    Threads that wait for each other at the end of every operator suffer far more from company
    than the share of time it takes, so what was timed beside other work says little.
    """

    def __init__(self) -> None:
        self._start = self._read()

    def share(self) -> float:
        wall, busy, own = (now - then for now, then in zip(self._read(), self._start, strict=True))
        return max(busy - own, 0.0) / max(wall * (os.cpu_count() or 1), 1e-9)

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds since some moment, seconds that any process has run, and those of this one and its children."""
        try:
            fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        except OSError:
            fields = [0] * 8
        user, nice, system, _, _, interrupts, soft_interrupts, stolen = fields[:8]
        busy = (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, sum(os.times()[:4])


def describe_bystanders(shares: dict[str, float]) -> str:
    """One line about the share of the processors that others took during each comparison."""
    noisy = [f"{name} {share:.0%}" for name, share in shares.items() if share > TOLERABLE_SHARE]
    if noisy:
        return f"**NOT QUIET, do not trust the times of** {', '.join(noisy)} (of the processors)"
    return f"at most {max(shares.values(), default=0.0):.0%} of the processors"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
