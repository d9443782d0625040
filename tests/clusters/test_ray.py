"""A grid on the Ray that the runner starts by itself; test_lost_node.py has a cluster."""

import json
import signal

import pytest

from grid_runs import processes_of, wait_for, write_grid, written
from ray_cluster import NOT_NICE


def test_ray_is_interrupted_in_good_order(tmp_path, start):
    """With ``--jobs 1`` the second run has not begun, although there is a CPU for it."""
    pytest.importorskip("ray")
    out = tmp_path / "out"
    grid = write_grid(tmp_path, [{"method": ["base", "lmp"]}], steps=5000)
    runner = start(grid, out, "--executor", "ray", "--jobs", "1", **NOT_NICE)
    wait_for(lambda: written(out))
    runner.process.send_signal(signal.SIGINT)
    code, _, error = runner.outcome()
    assert code == 130, error
    wait_for(lambda: not processes_of(out), every=0.2)
    saved = [json.loads(path.read_text())["status"] for path in (out / "runs").glob("*/run.json")]
    assert saved == ["stopped"]
    assert [path.name for path in (out / "logs").iterdir()] == ["base-s0.log"]
