"""A grid on the Ray that the runner starts by itself; test_runner.py has a cluster."""

import importlib.util
import json
import signal

import pytest

from grid_runs import processes_of, wait_for, write_grid, written
from losspool.lab.grids.ray import _missing
from ray_cluster import NOT_NICE


def test_a_machine_without_losspool_is_found(monkeypatch, tmp_path):
    """The code that asks is sent to it, so that the question itself would not fail."""
    assert _missing([tmp_path, tmp_path / "not there"]) == [tmp_path / "not there"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'losspool'"):
        _missing([tmp_path])


@pytest.mark.cluster
def test_ray_is_interrupted_in_good_order(tmp_path, start):
    pytest.importorskip("ray")
    out = tmp_path / "out"
    grid = write_grid(tmp_path, [{"method": "base"}], steps=5000)
    runner = start(grid, out, "--executor", "ray", **NOT_NICE)
    wait_for(lambda: written(out))
    runner.process.send_signal(signal.SIGINT)
    code, _, error = runner.outcome()
    assert code == 130, error
    wait_for(lambda: not processes_of(out), every=0.2)
    saved = [json.loads(path.read_text())["status"] for path in (out / "runs").glob("*/run.json")]
    assert saved == ["stopped"]
