"""Faults of a grid on a Ray cluster, with Ray's own timeouts.

    PYTHONPATH=src:tests python tests/scripts/ray_faults.py

- A machine is lost. Prints the seconds from the loss until its run is resumed on another; no run may fail.
- `losspool lab run` is killed with -9. Prints the seconds until its trainings have saved their state and ended.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from ray_cluster import RayCluster
from real_runs import ENVIRONMENT, description, trainings, until
from runs_for_tests import write_recipe

WAIT = 400


def start(cluster: RayCluster, folder: Path, checkpoint_every: int) -> subprocess.Popen:
    """A grid of two runs, in the folder ``out``."""
    steps, grid = 3000, folder / "grid.yaml"
    write_recipe(folder, steps=steps, log_every=20, validate_every=steps, checkpoint_every=checkpoint_every)
    grid.write_text(yaml.safe_dump({"recipe": "tiny.yaml", "runs": [{"method": ["base", "lmp"]}]}))
    words = ["lab", "run", grid, "--out", folder / "out", "--threads", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "losspool", *words, "--executor", "ray", "--address", cluster.address],
        env={**ENVIRONMENT, **cluster.environment},
        stdout=subprocess.DEVNULL,
    )


def machine_is_lost(cluster: RayCluster, folder: Path) -> str:
    runner, out = start(cluster, folder, checkpoint_every=20), folder / "out"
    assert until(lambda: len({path.parent for path in out.glob("runs/*/checkpoints/*.pt")}) == 2, WAIT)
    (lost,) = [name for name, pid in trainings(out).items() if pid in cluster.second.family()]
    cluster.join(gpus="4,5")  # with room for the run: the first has only one CPU, and its own run
    began = time.monotonic()
    cluster.lose(cluster.second)
    log = out / "logs" / f"{lost}.log"
    assert until(lambda: log.read_text().count("$ losspool train") == 2, WAIT)
    begun = time.monotonic() - began
    assert until(lambda: "resumed at step" in log.read_text(), WAIT)
    resumed = time.monotonic() - began
    assert runner.wait(WAIT) == 0, "the grid failed"
    return f"started again after {begun:.0f} s, resumed after {resumed:.0f} s"


def runner_is_killed(cluster: RayCluster, folder: Path) -> str:
    """The only checkpoint of a run is the one that it writes at the end."""
    runner, out = start(cluster, folder, checkpoint_every=3000), folder / "out"
    assert until(lambda: len([path for path in out.glob("runs/*/metrics.jsonl") if path.stat().st_size]) == 2, WAIT)
    began = time.monotonic()
    runner.kill()
    runner.wait()
    assert until(lambda: not trainings(out), WAIT)
    took = time.monotonic() - began
    for run in (out / "runs").iterdir():
        found = description(run)
        assert found["status"] == "stopped", (run.name, found["status"])
        assert (run / "checkpoints" / f"step-{found['step']:07d}.pt").exists(), run.name
    return f"both runs saved and ended after {took:.1f} s"


FAULTS = {"a machine is lost": machine_is_lost, "the runner is killed": runner_is_killed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FAULTS, help="One fault.")
    only = parser.parse_args().only
    for name in [only] if only else FAULTS:
        with tempfile.TemporaryDirectory() as folder, RayCluster(quick=False) as cluster:
            print(f"{name}: {FAULTS[name](cluster, Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
