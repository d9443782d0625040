"""Lose a machine of a Ray cluster in the middle of a grid, with Ray's own timeouts.

    PYTHONPATH=src:tests python tests/scripts/ray_faults.py

Prints the seconds from the loss until the machine's run is resumed on the other. The grid must end without a failure.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from ray_cluster import RayCluster
from real_runs import ENVIRONMENT, trainings, until
from runs_for_tests import write_recipe

WAIT = 400


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, RayCluster(quick=False) as cluster:
        grid, out = Path(folder) / "grid.yaml", Path(folder) / "out"
        write_recipe(Path(folder), steps=3000, log_every=20, validate_every=3000, checkpoint_every=20)
        grid.write_text(yaml.safe_dump({"recipe": "tiny.yaml", "runs": [{"method": ["base", "lmp"]}]}))
        words = ["lab", "run", grid, "--out", out, "--threads", "1", "--executor", "ray", "--address", cluster.address]
        runner = subprocess.Popen(
            [sys.executable, "-m", "losspool", *words],
            env={**ENVIRONMENT, **cluster.environment},
            stdout=subprocess.DEVNULL,
        )
        assert until(lambda: len({path.parent for path in out.glob("runs/*/checkpoints/*.pt")}) == 2, WAIT)
        (lost,) = [name for name, pid in trainings(out).items() if pid in cluster.second.family()]
        cluster.join(gpus="4,5")  # with room for the run: the first has only one CPU, and its own run
        start = time.monotonic()
        cluster.lose(cluster.second)
        assert until(lambda: (out / "logs" / f"{lost}.log").read_text().count("$ losspool train") == 2, WAIT)
        begun = time.monotonic() - start
        assert until(lambda: "resumed at step" in (out / "logs" / f"{lost}.log").read_text(), WAIT)
        print(f"started again after {begun:.0f} s, resumed after {time.monotonic() - start:.0f} s")
        assert runner.wait(WAIT) == 0, "the grid failed"


if __name__ == "__main__":
    main()
