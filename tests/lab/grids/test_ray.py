"""Grids on Ray: what is asked of it, and what is refused. tests/clusters/ has the real Ray."""

import importlib.util
import multiprocessing
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from grid_runs import wait_for
from losspool.lab.grids.ray import RayExecutor, _run_if_shared
from losspool.lab.grids.tasks import Options, Outcome, Task
from losspool.segmentation.base.errors import UserError
from real_runs import children, kill


class FakeRay:
    """Records what it is asked to run. A test ends the tasks, in any order."""

    exceptions = SimpleNamespace(RayError=RuntimeError)
    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda module: None)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
    )

    def __init__(self):
        self.resources, self.submitted, self.running, self.done = {"CPU": 8, "GPU": 2}, {}, [], []
        self.names = ["here"]

    def init(self, **_):
        pass

    def shutdown(self):
        pass

    def cluster_resources(self):
        return self.resources

    def nodes(self):
        about = {"Alive": True, "Resources": self.resources}
        return [{**about, "NodeID": name, "NodeManagerHostname": name} for name in self.names]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, function):
        def submit(task, marker, options):
            if "scheduling_strategy" in options:  # a question to one machine
                return function(task, marker)
            self.submitted[task.name] = options
            self.running.append(task.name)
            return task.name

        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda task, marker: submit(task, marker, options))
        )

    def end(self, name):
        self.running.remove(name)
        self.done.append(name)

    def wait(self, references, num_returns, timeout):
        found = [name for name in references if name in self.done][:num_returns]
        return found, [name for name in references if name not in found]

    def get(self, reference, timeout=None):
        return Outcome(reference, 0, "") if timeout is None else reference


@pytest.fixture
def fake_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", fake := FakeRay())
    return fake


def tasks(folder, names):
    return [Task(name, (), folder / f"{name}.log", folder, folder / ".stop", threads=3) for name in names]


def test_jobs_limits_the_runs_at_a_time(fake_ray, tmp_path):
    executor = RayExecutor(Options(jobs=2))
    executor.start(tasks(tmp_path, "abcde"))
    assert fake_ray.running == ["a", "b"]
    assert list(executor.ended(0)) == []
    for ends, then in (("b", ["a", "c"]), ("a", ["c", "d"]), ("d", ["c", "e"]), ("c", ["e"]), ("e", [])):
        fake_ray.end(ends)
        assert [outcome.name for outcome in executor.ended(0)] == [ends]
        assert fake_ray.running == then


def test_without_jobs_the_machines_limit_the_runs(fake_ray, tmp_path):
    RayExecutor(Options()).start(tasks(tmp_path, "abcde"))
    assert fake_ray.running == list("abcde")


def test_when_stopped_what_waits_does_not_begin(fake_ray, tmp_path):
    executor = RayExecutor(Options(jobs=1))
    executor.start(tasks(tmp_path, "abc"))
    executor.stop()
    assert list(executor.ended(0)) == []
    assert fake_ray.running == ["a"]
    assert (tmp_path / ".stop").exists()


@pytest.mark.parametrize(("given", "there", "asked"), [(2, 2, 2), (0, 2, 0), (None, 2, 1), (None, 0, 0)])
def test_ray_is_asked_for_the_gpus_of_a_run(given, there, asked, fake_ray, tmp_path):
    fake_ray.resources["GPU"] = there
    RayExecutor(Options(gpus_per_run=given)).start(tasks(tmp_path, "a"))
    assert fake_ray.submitted["a"]["num_gpus"] == asked
    assert fake_ray.submitted["a"]["num_cpus"] == 3


def test_more_gpus_than_a_machine_has_are_refused(fake_ray, tmp_path):
    with pytest.raises(UserError, match="--gpus-per-run 3: no machine with 3 or more CPUs has more than 2 GPUs"):
        RayExecutor(Options(gpus_per_run=3)).start(tasks(tmp_path, "a"))
    assert not list(tmp_path.iterdir())


def test_a_machine_without_losspool_is_refused(fake_ray, monkeypatch, tmp_path):
    """The code that asks is sent to it, so that the question itself would not fail."""
    fake_ray.names.append("far")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"machine far of the cluster cannot run losspool \(No module named 'losspool'\)"
    ):
        RayExecutor(Options()).start(tasks(tmp_path, "a"))


def test_a_machine_that_does_not_see_the_working_directory_is_refused(fake_ray, tmp_path):
    fake_ray.names.append("far")
    (task,) = [replace(task, folder=tmp_path / "project") for task in tasks(tmp_path, "a")]
    with pytest.raises(UserError, match=f"^machine far .* not see the working directory {task.folder}: start from"):
        RayExecutor(Options()).start([task])
    assert _run_if_shared(task, tmp_path).message.startswith("its machine does not see the working directory")
    (tmp_path / "project").mkdir()
    RayExecutor(Options()).start([task])
    assert fake_ray.running == ["a"]


def test_a_machine_that_does_not_see_the_output_folder_fails_its_runs(tmp_path):
    (task,) = tasks(tmp_path, "a")
    message = _run_if_shared(task, tmp_path / "logs" / ".shared").message
    assert message == f"its machine does not see {tmp_path / 'logs'}: name a folder with --out that all machines share"


def test_a_training_saves_its_state_after_ray_has_killed_its_own_processes(monkeypatch, tmp_path):
    """Ray kills a process and its direct children when the runner is gone. scripts/ray_faults.py does it with Ray."""
    training = tmp_path / "python"
    training.write_text("#!/bin/sh\necho begun\ncat\necho saved\n")  # as losspool.cli.job: until its input ends
    training.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(training))
    (task,) = [replace(task, commands=(("train",),)) for task in tasks(tmp_path, "a")]
    ray = multiprocessing.get_context("fork").Process(target=_run_if_shared, args=(task, tmp_path))
    ray.start()
    wait_for(lambda: task.log.exists() and "begun" in task.log.read_text())
    for pid in (*children(ray.pid), ray.pid):
        kill(pid)
    ray.join()
    wait_for(lambda: task.log.read_text().endswith("saved\n"), 30)
