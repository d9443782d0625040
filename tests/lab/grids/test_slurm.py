"""Grids on Slurm: the array job that is submitted, and what is refused. tests/clusters/test_slurm.py has its life."""

import errno
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from losspool.lab.grids.slurm import ArrayTask, SlurmExecutor, sbatch_file
from losspool.lab.grids.tasks import Options, Outcome, Task
from losspool.segmentation.base.errors import UserError
from real_runs import until
from runs_for_tests import write_recipe

submitit = pytest.importorskip("submitit")

OPTIONS = Options(jobs=2, threads=3, gpus_per_run=2, partition="gpu", time="1-12")


def task(tmp_path, name="lmp-s0"):
    return Task(name, (("train", "x"),), tmp_path / "logs" / f"{name}.log", tmp_path, tmp_path / "logs" / ".stop", 3)


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Slurm's commands: sbatch keeps the file, squeue prints a file, scancel records its arguments."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "queue").touch()
    commands = {
        "srun": "exit 1",
        "sbatch": f"cp $1 {tmp_path}/submitted; echo Submitted batch job 7",
        "squeue": f"cat {tmp_path}/queue",
        "scancel": f"echo $@ >> {tmp_path}/cancelled",
    }
    for name, script in commands.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr("losspool.lab.grids.slurm._ASK_EVERY", 0.0)
    return tmp_path


def test_the_grid_is_one_array_job_and_the_dry_run_prints_its_file(fake_slurm):
    text = sbatch_file(OPTIONS, 3, fake_slurm / "logs")
    assert not (fake_slurm / "logs").exists()
    slurm = SlurmExecutor(OPTIONS)
    slurm.start([task(fake_slurm, name) for name in ("a", "b", "c")])
    assert (fake_slurm / "submitted").read_text() == text
    flags = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, flags=re.MULTILINE))
    expected = {"array": "0-2%2", "partition": "gpu", "time": "2160", "cpus-per-task": "3", "gpus-per-node": "2"}
    assert {**flags, **expected, "requeue": "", "signal": "USR2@90"} == flags
    assert "wckey" not in flags  # submitit's own, which a cluster may refuse
    assert "--cpus-per-task=3 " in text.splitlines()[-2 if text.endswith("\n\n") else -1]


@pytest.mark.parametrize("gpus", [None, 0])
def test_a_grid_without_gpus_asks_for_none(gpus, tmp_path):
    assert "#SBATCH --gpu" not in sbatch_file(Options(threads=1, time="10", gpus_per_run=gpus), 2, tmp_path)


def test_what_was_submitted_is_reported_at_once(fake_slurm, capsys):
    """The first run may begin hours later."""
    logs = fake_slurm / "logs"
    SlurmExecutor(OPTIONS).start([task(fake_slurm, name) for name in ("a", "b", "c")])
    SlurmExecutor(OPTIONS).start([task(fake_slurm)])
    where = f"(logs: {logs}, output of the jobs: {logs / 'slurm'})"
    expected = [f"submitted 3 runs as Slurm job 7, 2 at a time {where}", f"submitted 1 run as Slurm job 7 {where}"]
    assert capsys.readouterr().err.splitlines() == expected


def test_a_job_imports_nothing_of_losspool(fake_slurm):
    """It waits for the training, which is another process: torch would take it seconds and memory."""
    SlurmExecutor(OPTIONS).start([task(fake_slurm)])
    (submitted,) = (fake_slurm / "logs" / "slurm").glob("*submitted.pkl")
    script = """
import pickle, sys
job = pickle.load(open(sys.argv[1], "rb")).function
again = job.checkpoint().function
print(again.task == job.task, again().message, {"losspool", "torch"} & set(sys.modules))
"""
    (fake_slurm / "logs" / ".stop").touch()
    words = [sys.executable, "-c", script, submitted]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "True stopped set()\n"


def test_a_job_that_left_the_queue_without_a_result_has_failed(fake_slurm, monkeypatch):
    slurm = SlurmExecutor(OPTIONS)
    slurm.start([task(fake_slurm, "a"), task(fake_slurm, "b")])
    (fake_slurm / "queue").write_text("7_0\n")
    assert list(slurm.ended(0)) == []  # its result may take a while to be seen here
    monkeypatch.setattr("losspool.lab.grids.slurm._LOST_AFTER", 0.0)
    (outcome,) = slurm.ended(0)
    assert outcome.name == "b"
    assert outcome.message.startswith("Slurm ended job 7_1 without a result")
    (fake_slurm / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")  # the controller is away
    assert list(slurm.ended(0)) == []


def test_a_result_that_cannot_be_read_is_read_again(fake_slurm, monkeypatch):
    """A shared disk may fail for a moment: the grid goes on. If it stays so after the job's end, the run has failed."""
    slurm = SlurmExecutor(OPTIONS)
    slurm.start([task(fake_slurm, "a"), task(fake_slurm, "b")])
    (fake_slurm / "queue").write_text("7_0\n7_1\n")
    paths = {name: job.paths.result_pickle for name, job in slurm._jobs.items()}
    for path in paths.values():
        path.write_bytes(b"\x80\x05half of a pickle")
    assert list(slurm.ended(0)) == []
    with monkeypatch.context() as patch:
        patch.setattr("submitit.core.utils.pickle_load", fail_to_read)
        assert list(slurm.ended(0)) == []
    paths["a"].write_bytes(pickle.dumps(("success", Outcome("a", 0, ""))))
    assert list(slurm.ended(0)) == [Outcome("a", 0, "")]
    (fake_slurm / "queue").write_text("")
    monkeypatch.setattr("losspool.lab.grids.slurm._LOST_AFTER", 0.0)
    (outcome,) = slurm.ended(0)
    assert outcome.message.startswith("Slurm ended job 7_1 without a result")


def fail_to_read(path):
    raise OSError(errno.ESTALE, "Stale file handle")


def test_when_stopped_waiting_jobs_are_cancelled_and_running_ones_save(fake_slurm, monkeypatch):
    slurm = SlurmExecutor(OPTIONS)
    slurm.start([task(fake_slurm, "a"), task(fake_slurm, "b")])
    (fake_slurm / "queue").write_text("7_0\n")
    monkeypatch.setattr("losspool.lab.grids.slurm._PATIENCE", 0.1)
    slurm.stop()
    assert (fake_slurm / "logs" / ".stop").exists()
    assert (fake_slurm / "cancelled").read_text().splitlines() == ["--state=PENDING 7", "7"]


def test_what_sbatch_refuses_is_one_sentence(fake_slurm):
    (fake_slurm / "bin" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: no such partition >&2\nexit 1\n")
    with pytest.raises(UserError, match=r"sbatch refused the grid \(sbatch: error: no such partition\)"):
        SlurmExecutor(OPTIONS).start([task(fake_slurm)])
    (fake_slurm / "bin" / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UserError, match=r"sbatch refused the grid \(no message\)"):
        SlurmExecutor(OPTIONS).start([task(fake_slurm)])


@pytest.mark.parametrize("name", ["100%", "%j"])
def test_a_folder_that_sbatch_would_rename_is_refused(name, fake_slurm):
    out = fake_slurm / name
    sentence = re.escape(f"--out {out}: --executor slurm needs a path without %, which sbatch would replace")
    with pytest.raises(UserError, match=sentence):
        SlurmExecutor(OPTIONS).start([task(out)])
    with pytest.raises(UserError, match=sentence):
        sbatch_file(OPTIONS, 1, out / "logs")


def without_sbatch(folder):
    (folder / "bin" / "sbatch").unlink()
    return "error: --executor slurm needs the command sbatch: start it on a machine of the cluster\n"


def sbatch_refuses(folder):
    (folder / "bin" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: no such partition >&2\nexit 1\n")
    return "error: sbatch refused the grid (sbatch: error: no such partition)\n"


@pytest.mark.parametrize("fault", [without_sbatch, sbatch_refuses])
def test_a_grid_that_is_refused_leaves_nothing_behind(fault, fake_slurm, command, monkeypatch):
    monkeypatch.setenv("PATH", f"{fake_slurm}/bin:/usr/bin:/bin")
    expected, out = fault(fake_slurm), fake_slurm / "new" / "out"
    grid = fake_slurm / "grid.yaml"
    grid.write_text(f"recipe: {write_recipe(fake_slurm).name}\nruns: [{{method: [base, lmp]}}]\n")
    words = ("lab", "run", grid, "--executor", "slurm", "--threads", "1", "--time", "10", "--out")
    code, output, error = command(*words, out)
    assert (code, output) == (2, "")
    assert error.endswith(expected)  # after what sbatch itself wrote
    assert not out.parent.exists()
    earlier = out / "logs" / "slurm" / "5_0_log.out"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    assert command(*words, out)[0] == 2
    assert [path for path in out.rglob("*") if path.is_file()] == [earlier]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90", 90), ("1:30", 2), ("24:00:00", 1440), ("0:59:30", 60), ("2-0", 2880), ("1-12", 2160), ("1-1:30:01", 1531)],
)
def test_times_are_slurms(text, minutes, tmp_path):
    content = sbatch_file(Options(threads=1, time=text), 1, tmp_path)
    assert f"#SBATCH --time={minutes}\n" in content
    assert "--array" not in content


@pytest.mark.parametrize("code", [0, 143])
def test_a_stopped_task_has_no_result_before_slurm_ends_it(code, tmp_path, monkeypatch):
    """SIGTERM is the first sign of a preemption: a result would end the run. One that was finished has its result."""
    array_task, requeued, returned = ArrayTask(task(tmp_path)), [], None

    def run(task, stopping):
        os.kill(os.getpid(), signal.SIGTERM)
        assert until(stopping, 10)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        return Outcome(task.name, code, "")

    def requeue(*_):  # as submitit's handler does
        requeued.append(array_task.checkpoint())
        raise SystemExit

    monkeypatch.setattr("losspool.lab.grids.slurm.run_task", run)
    before = [(number, signal.signal(number, requeue)) for number in (signal.SIGUSR2, signal.SIGTERM)]
    try:
        returned = array_task()
        time.sleep(10)  # until the signal
    except SystemExit:
        assert (returned is None) == bool(code)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    assert [each.function.task for each in requeued] == [array_task.task]


def test_a_signal_before_the_start_does_not_wait_for_an_outcome(tmp_path):
    assert ArrayTask(task(tmp_path)).checkpoint().function.task == task(tmp_path)
