"""Grids that really run, in processes of their own: skipped, resumed, killed, failing, and through Ray."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from grid_runs import STEPS, processes_of, run, wait_for, write_grid, written
from ray_cluster import RayCluster
from real_runs import has_torch, parent, trainings, variables
from runs_for_tests import metrics


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    return write_grid(folder, [{"method": ["base", "lmp"]}], evaluate=[{"split": "train"}])


@pytest.fixture(scope="module")
def undisturbed(grid):
    return finished(grid)


def finished(grid):
    """The folder of a grid that was run in peace, and what the runner printed."""
    out = grid.parent / "undisturbed"
    code, output, error = run(grid, out, "--jobs", "2")
    assert code == 0, error
    return out, output, error


def test_from_one_command_to_tables_figures_and_report(undisturbed):
    out, output, error = undisturbed
    for name in ("methods", "classes", "worst", "convergence"):
        for kind in ("md", "tex", "csv"):
            assert (out / "tables" / f"{name}.{kind}").stat().st_size > 0
    for number in (1, 2, 3, 4):
        for kind in ("png", "svg"):
            assert (out / "figures" / f"fig{number}.{kind}").stat().st_size > 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert output.splitlines()[-1] == f"report: {out / 'report.html'}"
    assert "Methods: mIoU in %" in output
    for name in ("base-s0", "lmp-s0"):
        assert f"{name}: finished, step {STEPS} of {STEPS}" in error
        assert (out / "runs" / name / f"evaluation-train-none-{STEPS}.json").exists()


def test_only_what_is_missing_is_run_again(grid, undisturbed):
    """A finished run is skipped; one without its evaluation is evaluated and not trained; the results are the same."""
    out, output, _ = undisturbed
    evaluation = out / "runs" / "base-s0" / f"evaluation-train-none-{STEPS}.json"
    content, log = evaluation.read_bytes(), (out / "logs" / "lmp-s0.log").read_bytes()
    evaluation.unlink()

    def changed():
        return {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}

    before = changed()
    code, again, error = run(grid, out)
    assert code == 0, error
    assert again == output
    assert evaluation.read_bytes() == content
    assert {path: time for path, time in changed().items() if path != evaluation} == before
    assert (out / "logs" / "lmp-s0.log").read_bytes() == log


@pytest.mark.cluster
def test_interrupted_then_killed_then_finished_by_a_ray_cluster_that_loses_a_node(tmp_path, start):
    """Whatever ended it and whichever executor goes on, the tables, figures and metrics are the same."""
    pytest.importorskip("ray")
    grid = write_grid(tmp_path, [{"method": ["base", "lmp"]}])
    out, own = tmp_path / "disturbed", tmp_path / "own"
    undisturbed, *_ = finished(grid)
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
    wait_for(lambda: written(out) > before)
    runner.process.kill()
    runner.process.wait()
    wait_for(lambda: not processes_of(out), every=0.2)


def test_a_failing_run_stops_no_other_and_is_named(tmp_path):
    grid = write_grid(tmp_path, [{"method": "base"}, {"method": "lmp", "train.lr": [1e30, 0.02]}], steps=8)
    out = tmp_path / "out"
    code, _, error = run(grid, out, "--jobs", "2")
    assert code == 1
    (line,) = [line for line in error.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: lmp-lr1e+30-s0: error: the loss is not finite at step")
    assert str(out / "logs" / "lmp-lr1e+30-s0.log") in line
    assert "Traceback" not in error
    methods = (out / "tables" / "methods.csv").read_text()
    assert [row.split(",")[0] for row in methods.splitlines()[1:]] == ["base", "lmp"]
    assert "Failed, and so without a score: lmp, lr = 1e+30 (seed 0," in (out / "tables" / "methods.md").read_text()


def assert_same(one: Path, other: Path) -> None:
    assert contents(one / "tables") == contents(other / "tables")
    assert contents(one / "figures") == contents(other / "figures")
    for name in ("base-s0", "lmp-s0"):
        assert metrics(one / "runs" / name) == metrics(other / "runs" / name)
