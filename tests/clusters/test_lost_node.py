"""A grid that is interrupted, killed, and finished by a Ray cluster of two nodes that loses one of them."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from grid_runs import STEPS, processes_of, run, run_in_peace, wait_for, write_grid, written
from ray_cluster import RayCluster
from real_runs import has_torch, parent, trainings, variables
from runs_for_tests import metrics


def test_interrupted_then_killed_then_finished_by_a_ray_cluster_that_loses_a_node(tmp_path, start):
    """Whatever ended it and whichever executor goes on, the tables, figures and metrics are the same."""
    pytest.importorskip("ray")
    grid = write_grid(tmp_path, [{"method": ["base", "lmp"]}])
    out, own = tmp_path / "disturbed", tmp_path / "own"
    undisturbed, *_ = run_in_peace(grid)
    interrupt(start, grid, out)
    kill(start, grid, out)
    steps = [json.loads(path.read_text()).get("step", 0) for path in (out / "runs").glob("*/run.json")]
    assert any(step < STEPS for step in steps), "it was killed too late to show anything"
    own.mkdir()
    with RayCluster(hidden=own if os.geteuid() == 0 else None) as cluster:
        if os.geteuid() == 0:
            refuse_a_folder_of_its_own(cluster, grid, own)
        lose_a_node(start, cluster, grid, out)
    assert_same(undisturbed, out)
    if os.geteuid() != 0:
        pytest.skip("all but one step is done: a node with a disk of its own takes root")


def lose_a_node(start, cluster, grid, out):
    """Each node has one run, which sees its own two GPUs. The lost node's is resumed on the other."""
    options = ("--executor", "ray", "--address", cluster.address, "--gpus-per-run", "2")
    runner = start(grid, out, *options, **cluster.environment)
    wait_for(lambda: len(halted(out)) == 2, every=0.2)  # it looks through all processes
    found = trainings(out)
    seen = [variables(pid)["CUDA_VISIBLE_DEVICES"].split(",") for pid in found.values()]
    assert sorted(map(sorted, seen)) == [["0", "1"], ["2", "3"]]
    assert not any(has_torch(parent(parent(pid))) for pid in found.values())  # Ray's processes only wait for them
    (lost,) = [name for name, pid in found.items() if pid in cluster.second.family()]
    log = out / "logs" / f"{lost}.log"
    resumed = log.read_text().count("resumed at step")
    for pid in found.values():
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: log.read_text().count("resumed at step") > resumed)
    os.kill(found[lost], signal.SIGSTOP)  # in the middle
    cluster.lose(cluster.second)
    code, _, error = runner.outcome()
    assert code == 0, error
    assert log.read_text().count("resumed at step") == resumed + 2
    assert not list((out / "logs").glob(".*"))


def halted(out):
    """Trainings that have begun. None goes on and ends before the other has begun, however slow a node is."""
    found = trainings(out)
    for pid in found.values():
        os.kill(pid, signal.SIGSTOP)
    return found


def refuse_a_folder_of_its_own(cluster, grid, out):
    """The second node sees another folder at this path."""
    code, _, error = run(grid, out, "--executor", "ray", "--address", cluster.address, **cluster.environment)
    assert code == 2, error
    assert re.search(rf"error: machine .* of the cluster does not see {out / 'logs'}: name a folder with --out", error)
    assert not list(out.iterdir())


def interrupt(start, grid, out):
    """Ctrl-C stops all runs and says how to go on."""
    runner = start(grid, out)
    wait_for(lambda: written(out))
    runner.process.send_signal(signal.SIGINT)
    code, output, error = runner.outcome()
    assert code == 130
    assert output == ""
    assert "run the same command again to resume" in error
    assert "Traceback" not in error
    assert not processes_of(out)
    assert not (out / "tables").exists()


def kill(start, grid, out):
    """The runner dies at once; its runs notice, save and end."""
    before = written(out)
    runner = start(grid, out, "--jobs", "2")
    wait_for(lambda: written(out) > before and written(out, "lmp-s0"))  # so that each has something to resume
    runner.process.kill()
    runner.process.wait()
    wait_for(lambda: not processes_of(out), every=0.2)


def assert_same(one: Path, other: Path) -> None:
    assert contents(one / "tables") == contents(other / "tables")
    assert contents(one / "figures") == contents(other / "figures")
    for name in ("base-s0", "lmp-s0"):
        assert metrics(one / "runs" / name) == metrics(other / "runs" / name)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
