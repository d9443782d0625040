"""A long run stays level: memory, open files and the checkpoint folder, watched from outside.

    PYTHONPATH=tests python tests/faults/long_run.py --steps 3000

Trains on six small images with a loader process, validates and saves every 25 steps, and reads /proc meanwhile. The
resident memory at the end, the trainer's and the loader's, may be 1.05 times that at step 500. Expect two minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from real_runs import Processes, outcome
from runs_for_tests import write_recipe

EVERY = 25
KEEP_LAST = 2
# The newest two, the best one, and the one that was just written when older ones are not deleted yet.
MOST_CHECKPOINTS = KEEP_LAST + 2
MOST_GROWTH = 1.05
WINDOW = 100  # steps before and up to a mark, whose samples make the figure there


class Sample(NamedTuple):
    """One look at a training process."""

    step: int
    resident: float  # MiB of the trainer
    loader: float  # MiB of its loader process
    files: int
    checkpoints: int


class Level(NamedTuple):
    """What the samples of a window come to."""

    resident: float  # the median
    loader: float
    files: int  # the fewest: files that are open for a moment come and go


def watch(folder: Path, steps: int) -> list[Sample]:
    """Train in a process of its own; the samples, up to its end."""
    recipe = write_recipe(
        folder, steps=steps, log_every=5, validate_every=EVERY, checkpoint_every=EVERY, keep_last=KEEP_LAST
    )
    out = folder / "run"
    samples: list[Sample] = []
    with Processes() as processes:
        process = processes.launch("train", recipe, "data.workers=1", "--out", out)
        while process.poll() is None:  # it says a line per validation, which the pipe has room for
            if (sample := _look(process.pid, out)) is not None:
                samples.append(sample)
            time.sleep(0.02)
        code, output = outcome(process)
    if code != 0:
        raise RuntimeError(f"the training ended with {code}:\n{output}")
    return samples


def _look(pid: int, out: Path) -> Sample | None:
    """None before the first line of metrics, and once the loader has ended: the trainer is about to, too."""
    try:
        lines = (out / "metrics.jsonl").read_text().splitlines()
        step = int(re.findall(r'^{"step": (\d+)', "\n".join(lines[-2:]), re.MULTILINE)[-1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        loader = max(_resident(int(child)) for child in children)
        files = len(os.listdir(f"/proc/{pid}/fd"))
        checkpoints = len(os.listdir(out / "checkpoints")) if (out / "checkpoints").exists() else 0
        return Sample(step, _resident(pid), loader, files, checkpoints)
    except (OSError, IndexError, ValueError):
        return None


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)  # it has ended


def level(samples: list[Sample], mark: int, window: int = WINDOW) -> Level:
    """The window that ends with step ``mark``."""
    chosen = [each for each in samples if mark - window < each.step <= mark]
    if not chosen:
        raise RuntimeError(f"no sample of the steps {mark - window} to {mark}: is the machine asleep?")
    return Level(
        statistics.median(each.resident for each in chosen),
        statistics.median(each.loader for each in chosen),
        min(each.files for each in chosen),
    )


def is_level(first: Level, last: Level) -> bool:
    """Neither the trainer nor its loader has grown, and no file was left open."""
    pairs = ((first.resident, last.resident), (first.loader, last.loader))
    return all(late <= MOST_GROWTH * early for early, late in pairs) and first.files == last.files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--mark", type=int, default=500, help="the step to compare the end with")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        samples = watch(Path(folder), chosen.steps)
        took = time.perf_counter() - began
        left = sorted(path.name for path in (Path(folder) / "run" / "checkpoints").iterdir())
    for mark in sorted({chosen.mark, *range(chosen.mark, chosen.steps + 1, 500), chosen.steps}):
        here = level(samples, mark)
        print(f"step {mark:5}: trainer {here.resident:.1f} MiB, loader {here.loader:.1f} MiB, {here.files} open files")
    first, last = level(samples, chosen.mark), level(samples, chosen.steps)
    most = max(each.checkpoints for each in samples)
    print(f"{chosen.steps} steps with {chosen.steps // EVERY} validations and checkpoints in {took:.0f} s")
    trainer, loader = last.resident / first.resident, last.loader / first.loader
    print(f"memory at the end is {trainer:.3f} times that at step {chosen.mark}, of the loader's process ", end="")
    print(f"{loader:.3f} times; at most {most} checkpoints at a time, in the end {left}")
    good = is_level(first, last) and most <= MOST_CHECKPOINTS and len(left) <= KEEP_LAST + 1
    print("level" if good else "NOT level")
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
