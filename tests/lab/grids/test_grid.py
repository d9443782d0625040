"""Grids: what they would run, and what is wrong with those that cannot."""

import datetime
import os
import re
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from losspool.lab.grids import read_grid
from losspool.lab.grids.executors import find_executor
from losspool.lab.grids.local import LocalExecutor
from losspool.lab.grids.runner import run_jobs
from losspool.lab.grids.tasks import Options, Outcome, Task, run_task
from losspool.lab.library import GRIDS
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.recipes import dump_config
from losspool.segmentation.config.schema import METHODS
from real_runs import forked_python
from runs_for_tests import write_recipe
from trained_runs import assert_mistake

ROOT = Path(__file__).parents[3]


def jobs(name, tmp_path):
    return read_grid(name).jobs(tmp_path)


@pytest.mark.parametrize("path", GRIDS.files.values(), ids=lambda path: path.stem)
def test_every_grid_can_be_planned_and_names_its_own_command(path, tmp_path):
    made = read_grid(path).jobs(tmp_path)
    assert len({job.folder.path for job in made}) == len(made) > 1
    assert all(job.missing for job in made)
    assert list(tmp_path.iterdir()) == []  # planning writes nothing
    head = path.read_text().split("recipe:")[0]
    assert ("losspool demo" if path.stem == "demo" else f"losspool lab run {path.stem}") in head
    grid = read_grid(path)
    methods = {job.config.method for job in made}
    assert grid.baseline.split(",")[0] in methods


@pytest.mark.parametrize("name", ["table1", "streets-table1"])
def test_table_1(name, tmp_path):
    made = jobs(name, tmp_path)
    swept = [job.config.loss.p for job in made if job.config.method == "lmp" and job.config.seed == 0]
    assert swept == [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.3]
    assert {job.config.loss.share for job in made} == {0.25}
    assert {len(job.config.train.keep_steps) for job in made} == {3}
    assert len(made) == 12


@pytest.mark.parametrize("name", ["m-sweep", "camvid-m-sweep", "streets-m-sweep"])
def test_sweep_of_m(name, tmp_path):
    swept = [job.config.loss for job in jobs(name, tmp_path) if job.config.method == "lmp" and job.config.seed == 0]
    assert [(loss.p, loss.share) for loss in swept] == [(1.3, 0.1), (1.3, 0.25), (1.3, 0.5)]


NEWER = {"ohem", "dice", "lovasz"}
"""Methods that the grids for the paper's tables do not compare."""


@pytest.mark.parametrize("name", ["table2-cityscapes", "table2-voc", "streets-table2"])
def test_table_2_has_all_methods_of_its_time(name, tmp_path):
    assert {job.config.method for job in jobs(name, tmp_path)} == set(METHODS) - NEWER


def test_camvids_table_2_has_every_method_that_was_published(tmp_path):
    """More seeds for the methods that the paper is about; random_pixels is not a method of its Table 2."""
    seeds = Counter(job.config.method for job in jobs("camvid-table2", tmp_path))
    methods = set(METHODS) - NEWER - {"random_pixels"}
    assert seeds == {method: 5 if method in ("base", "lmp_loss_only", "lmp") else 3 for method in methods}


def test_cityscapes_table_2_is_evaluated_as_in_the_paper(tmp_path):
    job = jobs("table2-cityscapes", tmp_path)[0]
    (wanted,) = job.evaluations
    assert wanted.settings.tiling == "optimized"
    path = wanted.path(job)
    assert path.name == "evaluation-val-optimized-150000+160000+165000.json"
    assert read_grid("table2-cityscapes").scores == "val-optimized"
    arguments = job.missing[1]
    assert arguments[:2] == ("evaluate", str(job.folder.path))
    assert "150000,160000,165000" in arguments


def test_the_documents_example(tmp_path):
    (example,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "lab.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    made = read_grid(tmp_path / "example.yaml").jobs(tmp_path / "out")
    assert len(made) == 3 + 4 * 2
    assert made[0].evaluations[0].checkpoint == "best"


def write_grid(folder, **content):
    write_recipe(folder)
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump({"recipe": "tiny.yaml", "runs": [{"method": "base"}], **content}, sort_keys=False))
    return path


def test_names_and_overrides(tmp_path):
    runs = [{"method": ["base", "lmp"]}, {"method": "lmp", "loss.p": [1.0, float("inf")], "loss.m": "10%"}]
    path = write_grid(tmp_path, runs=runs, seeds=[3, 4], overrides={"train.steps": 7, "train.keep_steps": [3, 7]})
    made = {job.name: job.config for job in read_grid(path).jobs(tmp_path / "out", ["train.batch=1", "train.lr=1e-05"])}
    assert list(made) == [
        *("base-s3", "base-s4", "lmp-s3", "lmp-s4"),
        *("lmp-p1.0-m10-s3", "lmp-p1.0-m10-s4", "lmp-p.inf-m10-s3", "lmp-p.inf-m10-s4"),
    ]
    for config in made.values():
        assert (config.train.steps, config.train.batch, config.train.lr) == (7, 1, 1e-5)
        assert config.train.keep_steps == (3, 7)
    assert made["lmp-p.inf-m10-s4"].loss.p == float("inf")
    assert made["lmp-p.inf-m10-s4"].seed == 4


def test_a_block_may_have_its_own_seeds(tmp_path):
    runs = [{"method": "lmp", "seeds": [5, 1]}, {"method": ["base", "focal"]}]
    path = write_grid(tmp_path, runs=runs, seeds=[0])
    made = {job.name: job.config.seed for job in read_grid(path).jobs(tmp_path / "out")}
    assert made == {"lmp-s5": 5, "lmp-s1": 1, "base-s0": 0, "focal-s0": 0}


def test_dry_run_lists_commands_and_writes_nothing(tmp_path, command):
    path = write_grid(tmp_path, runs=[{"method": ["base", "lmp"]}], evaluate=[{"split": "train"}])
    code, output, _ = command("lab", "run", path, "--out", tmp_path / "out", "--dry-run")
    assert code == 0
    assert "base-s0: new" in output
    assert f"losspool train {tmp_path / 'tiny.yaml'} method=base seed=0 --out" in output
    assert output.count("losspool evaluate") == 2
    assert "2 runs, 2 of them to run" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"runs": []}, "'runs' must be a list"),
        ({"runs": [{}]}, "'runs' must be a list"),
        ({"runs": [{"method": "best"}]}, "method must be one of"),
        ({"runs": [{"method": "lmp", "loss.q": [1]}]}, "'loss.q'"),
        ({"runs": [{"method": "lmp", "loss.p": [0.5]}]}, "loss.p must be at least 1"),
        ({"runs": [{"method": ["lmp", "lmp"]}]}, "2 runs are called 'lmp-s0'"),
        ({"seeds": 3}, "'seeds' must be a list of whole numbers, got 3"),
        ({"seeds": [True]}, "'seeds' must be"),
        ({"recipe": None}, "'recipe' must be a recipe's name or path"),
        ({"recipe": "none.yaml"}, "none.yaml"),
        ({"sedes": [1]}, "unknown key 'sedes'"),
        ({"overrides": [1]}, "'overrides' must hold settings"),
        ({"evaluate": [{"tile": "none"}]}, "unknown key 'tile'"),
        ({"evaluate": [{"tiling": "some"}]}, "evaluate.tiling must be one of"),
        ({"evaluate": [{"checkpoint": "first"}]}, "got 'first'"),
        ({"evaluate": {"split": "test"}}, "'evaluate' must be a list"),
        ({"scores": 3}, "'scores' must be text"),
        ({"scores": "test"}, "scores 'test' must begin one of the evaluations []"),
        ({"scores": "tset", "evaluate": [{"split": "test"}]}, "scores 'tset' must begin"),
        ({"baseline": "bsae"}, "unknown baseline 'bsae'; choose from 'base'"),
        ({"runs": [{1: 2}]}, "1 must be a setting's name"),
        ({"runs": [{"method": []}]}, "'method' must be a setting's name with a value"),
        ({"runs": [{"method": "base", "seed": 5}]}, "seeds are named in 'seeds'"),
        ({"runs": [{"method": "base", "seeds": 5}]}, "'seeds' must be a list of whole numbers, got 5"),
        ({"runs": [{"method": "base", "seeds": []}]}, "'seeds' must be a list of whole numbers, got []"),
        ({"runs": [{"method": "base", "seeds": [0, 0]}]}, "2 runs are called 'base-s0'"),
        ({"runs": [{"seeds": [3]}]}, "a block of seeds alone has no run"),
        ({"runs": [{"method": "base", "train.lr": datetime.date(2020, 1, 1)}]}, "train.lr cannot be"),
        ({"runs": [{"method": "base", "train": {"lr": 1}}]}, "train cannot be"),
        ({"runs": [{"method": "lmp"}, {"method": "lmp", "loss.p": 1.3}]}, "'lmp-s0' and 'lmp-p1.3-s0' are the same"),
        ({"runs": [{"method": "lmp", "data.workers": [0, 1]}]}, "are the same"),
        ({"evaluate": [{"checkpoint": [500]}]}, "will have no checkpoint of step 500; train.keep_steps names those"),
        ({"evaluate": [{"scales": 1.0}]}, "scales must be a list"),
        ({"evaluate": [{"flip": "yes"}]}, "flip must be true or false"),
        ({"evaluate": [{"split": 3}]}, "split must be text"),
    ],
)
def test_mistakes(content, words, tmp_path, command):
    assert_mistake(command("lab", "run", write_grid(tmp_path, **content), "--dry-run"), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--executor", "cloud"], "--executor must be local, ray or slurm, got 'cloud'"),
        (["--address", "auto"], "--address auto is for --executor ray"),
        (["--gpus-per-run", "1"], "--gpus-per-run 1 is for --executor ray or slurm"),
        (["--executor", "ray", "--gpus-per-run", "-1"], "--gpus-per-run must be at least 0, got -1"),
        (["--executor", "ray", "--partition", "gpu"], "--partition gpu is for --executor slurm"),
        (["--executor", "slurm", "--time", "60"], "--executor slurm needs --threads\n"),
        (["--executor", "slurm"], "--executor slurm needs --threads and --time\n"),
        (["--executor", "slurm", "--threads", "1", "--time", "a day"], "--time must be minutes, hours:minutes:seconds"),
        (["--executor", "slurm", "--threads", "1", "--time", "0:0"], "--time must be at least a minute, got '0:0'"),
        (["seed=7"], "seed=7: the grid itself sets seed"),
        (["method=lmp"], "method=lmp: the grid itself sets method"),
    ],
)
def test_wrong_options(options, words, tmp_path, command):
    assert_mistake(command("lab", "run", write_grid(tmp_path), "--out", tmp_path / "out", *options), words)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_config_is_refused(tmp_path):
    path = write_grid(tmp_path)
    (job,) = read_grid(path).jobs(tmp_path / "out")
    job.folder.path.mkdir(parents=True)
    job.folder.config.write_text(dump_config(replace(job.config, seed=9)))
    with pytest.raises(UserError, match="its seed is 9, the command says 0"):
        read_grid(path).jobs(tmp_path / "out")


def test_damaged_folders_are_runs_to_be_resumed(tmp_path):
    path = write_grid(tmp_path)
    (job,) = read_grid(path).jobs(tmp_path / "out")
    job.folder.path.mkdir(parents=True)
    (job.folder.path / ".config.yaml.12345678.partial").write_text("half")
    job.folder.description.write_text("{")
    with pytest.raises(UserError, match="holds other files"):  # of a description without a config
        read_grid(path).jobs(tmp_path / "out")
    job.folder.config.write_text(dump_config(job.config))
    (again,) = read_grid(path).jobs(tmp_path / "out")
    assert again.missing == [again.train]


def test_whatever_goes_wrong_in_a_worker_is_an_outcome(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("something else")

    monkeypatch.setattr("losspool.lab.grids.tasks.subprocess.Popen", fail)
    local = LocalExecutor(1)
    local.start([task(tmp_path, ("train",))])
    (outcome,) = local.ended(5)
    local.stop()
    assert outcome.message == "cannot be started (something else)"


def task(tmp_path, *commands, threads=1):
    return Task("t", commands, tmp_path / "logs" / "t.log", tmp_path, tmp_path / "stop", threads)


def test_a_task_ends_at_its_first_failing_command_even_if_its_name_is_no_text(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", forked_python()["FORKED_PYTHON"])
    outcome = run_task(task(tmp_path, ("evaluate", os.fsdecode(b"no\xffwhere")), ("train", "--help")))
    assert outcome.code == 2
    assert outcome.message.startswith("error: no")
    log = (tmp_path / "logs" / "t.log").read_bytes()
    assert b"no\xffwhere" in log
    assert b"losspool train" not in log


def test_a_task_that_was_stopped_starts_nothing(tmp_path):
    (tmp_path / "stop").touch()
    assert run_task(task(tmp_path, ("train", "--help"))).message == "stopped"
    assert (tmp_path / "logs" / "t.log").read_bytes() == b""


@pytest.mark.parametrize(
    ("given", "gpus"), [(None, ("0", "1")), ("2,3", ("2", "3")), ("GPU-a, GPU-b", ("GPU-a", "GPU-b"))]
)
def test_threads_and_gpus_are_shared_out(given, gpus, tmp_path, monkeypatch):
    seen, both = [], threading.Barrier(2, timeout=10)

    def record(words, **options):
        both.wait()  # each slot takes one
        seen.append((options["env"]["OMP_NUM_THREADS"], options["env"].get("CUDA_VISIBLE_DEVICES")))
        raise OSError("no more processes")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    monkeypatch.setattr("losspool.lab.grids.tasks.subprocess.Popen", record)
    local = LocalExecutor(2, gpus=2)
    local.start([task(tmp_path, ("train",), threads=3) for _ in range(2)])
    outcomes = list(local.ended(5))
    if len(outcomes) < 2:  # else there is nothing to wait for
        outcomes += local.ended(5)
    local.stop()
    assert sorted(seen) == [("3", gpu) for gpu in gpus]
    assert {outcome.message for outcome in outcomes} == {"cannot be started (no more processes)"}


def test_steps_that_are_kept_may_be_evaluated(tmp_path):
    overrides = {"train.steps": 10, "train.checkpoint_every": 4, "train.keep_last": 2, "train.keep_steps": [3, 8]}
    path = write_grid(tmp_path, overrides=overrides, evaluate=[{"checkpoint": [3, 8, 10, 10]}])
    (job,) = read_grid(path).jobs(tmp_path / "out")
    (wanted,) = job.evaluations
    assert wanted.path(job).name.endswith("-3+8+10.json")
    path = write_grid(tmp_path, overrides=overrides, evaluate=[{"checkpoint": [4]}])
    with pytest.raises(UserError, match="base-s0 will have no checkpoint of step 4"):
        read_grid(path).jobs(tmp_path / "out")


def test_two_runners_of_one_folder_stop_apart(tmp_path):
    class Recorder:
        stops: ClassVar[list[Path]] = []

        def start(self, tasks):
            self.tasks = list(tasks)
            self.stops.extend(task.stop for task in tasks)

        def ended(self, timeout):
            return [Outcome(task.name, 1, "no") for task in self.tasks]

        def stop(self):
            pass

    made = read_grid(write_grid(tmp_path)).jobs(tmp_path / "out")
    for _ in range(2):
        run_jobs(made, Recorder(), threads=1, logs=tmp_path / "logs")
    one, other = Recorder.stops
    assert one != other


def test_the_executor_of_that_name():
    options = Options(jobs=os.cpu_count() or 1)
    assert isinstance(find_executor("local", options).make(options), LocalExecutor)
