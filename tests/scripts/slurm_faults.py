"""Disturb grids on a real Slurm, and compare their tables with those of the local executor.

    eval "$(tests/scripts/slurm_cluster.sh start FOLDER)"
    PYTHONPATH=src:tests python tests/scripts/slurm_faults.py
    tests/scripts/slurm_cluster.sh stop FOLDER

Each fault hits a grid of two runs while both train. Printed are the seconds from the fault until both train again.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from real_runs import ENVIRONMENT, until
from runs_for_tests import metrics, write_recipe


def slurm(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def jobs() -> list[str]:
    return slurm("squeue", "--me", "--array", "--noheader", "--name=losspool", "--format=%i").split()


def signalled() -> None:
    """What Slurm sends ahead of the time limit, and what `scancel --signal` sends."""
    for job in jobs():
        slurm("scancel", "--signal=USR2", job)


def requeued() -> None:
    """An administrator, or a node that fails: SIGTERM, and after KillWait SIGKILL."""
    for job in jobs():
        slurm("scontrol", "requeue", job)


def preempted() -> None:
    """A job of a partition with priority takes the node for two seconds."""
    slurm("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")


FAULTS: dict[str, tuple[Callable[[], None], list[str]]] = {
    "signal": (signalled, ["--partition", "scavenge"]),
    "requeue": (requeued, ["--partition", "scavenge"]),
    "preemption": (preempted, ["--partition", "scavenge"]),
    "preemption with a grace period": (preempted, ["--partition", "patient"]),
}


def write_grid(folder: Path, steps: int) -> Path:
    write_recipe(folder, steps=steps, log_every=20, validate_every=steps, checkpoint_every=steps)
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump({"recipe": "tiny.yaml", "runs": [{"method": ["base", "lmp"]}], "baseline": "base"}))
    return path


def launch(grid: Path, out: Path, *options: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "losspool", "lab", "run", grid, "--out", out, "--threads", "1", *options]
    return subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.DEVNULL)


def resumes(out: Path) -> list[int]:
    return [path.read_text().count("resumed at step") for path in sorted((out / "logs").glob("*.log"))]


def progress(out: Path) -> list[int]:
    return [path.stat().st_size for path in sorted((out / "runs").glob("*/metrics.jsonl"))]


def trial(name: str, grid: Path, expected: Path, wait: float) -> str:
    fault, options = FAULTS[name]
    out = grid.parent / name.replace(" ", "-")
    runner = launch(grid, out, "--executor", "slurm", "--time", "60", *options)
    assert until(lambda: len(progress(out)) == 2 and all(progress(out)), wait), "the runs did not begin"
    start = time.monotonic()
    fault()
    assert until(lambda: resumes(out) == [1, 1], wait), f"not resumed: {resumes(out)}"
    before = progress(out)
    assert until(lambda: all(now > then for now, then in zip(progress(out), before, strict=True)), wait)
    seconds = time.monotonic() - start
    assert runner.wait(wait * 4) == 0, "the grid failed"
    for run in ("base-s0", "lmp-s0"):
        assert metrics(out / "runs" / run) == metrics(expected / "runs" / run), run
    for table in (expected / "tables").iterdir():
        assert table.read_bytes() == (out / "tables" / table.name).read_bytes(), table.name
    return f"{name}: both runs saved, were requeued and resumed after {seconds:.0f} s; tables and metrics equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="Length of each run.")
    parser.add_argument("--wait", type=float, default=300, help="Seconds until something must have happened.")
    parser.add_argument("--only", choices=FAULTS, help="One fault.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grid, expected = write_grid(Path(folder), arguments.steps), Path(folder) / "local"
        assert launch(grid, expected, "--jobs", "2").wait() == 0
        for name in [arguments.only] if arguments.only else FAULTS:
            print(trial(name, grid, expected, arguments.wait), flush=True)


if __name__ == "__main__":
    main()
