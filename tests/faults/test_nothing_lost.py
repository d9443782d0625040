"""Small faults at the worst moment: no line of the metrics, no checkpoint and no finished run may be lost by one."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.base.process import Interrupt
from losspool.segmentation.runs import checkpoints
from losspool.segmentation.runs.checkpoints import checkpoint_path, newest_checkpoint, steps_in, write_checkpoint
from losspool.segmentation.runs.run_log import MetricsFile, read_metrics
from losspool.segmentation.training import claim, validation
from losspool.segmentation.training.trainer import Trainer
from real_runs import ENVIRONMENT, Processes, description, outcome, until
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe

STEPS = 12
NO_SPACE = OSError(28, "No space left on device")


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path, steps=STEPS, checkpoint_every=3, validate_every=6, log_every=2, previews=0)


class Killed(BaseException):
    """Nothing in the program can catch it: what happens next happens after a kill."""


@pytest.fixture
def kill_at(monkeypatch):
    """Have the training end at a step as if it had been killed."""

    def die():
        raise Killed

    return lambda step: at_step(monkeypatch, step + 1, die)


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_line_that_cannot_be_written_is_written_after_the_resume(split, recipe, tmp_path, monkeypatch):
    """At step 6 both a line of training and a validation are due."""
    train(recipe, tmp_path / "truth")
    with monkeypatch.context() as patch:
        real = MetricsFile.append

        def append(self, entry):
            if (entry["step"], entry["split"]) == (6, split):
                raise UserError(f"{self._path}: cannot be written (No space left on device)")
            real(self, entry)

        patch.setattr(MetricsFile, "append", append)
        with pytest.raises(UserError, match="No space left"):
            train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run", resume=True)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "truth")
    assert_equal(checkpoint(tmp_path / "run", STEPS), checkpoint(tmp_path / "truth", STEPS))


def test_a_run_that_was_killed_before_it_could_say_that_it_is_finished(recipe, tmp_path):
    train(recipe, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**description(tmp_path / "run"), "status": "running"}))
    train(recipe, tmp_path / "run", resume=True)
    assert description(tmp_path / "run")["status"] == "finished"
    assert description(tmp_path / "run")["step"] == STEPS
    before = path.read_bytes()
    train(recipe, tmp_path / "run", resume=True)
    assert path.read_bytes() == before  # what is finished is left alone


def test_checkpoints_that_cannot_be_read_do_not_push_out_new_ones(tmp_path, kill_at):
    recipe = write_recipe(
        tmp_path, steps=30, checkpoint_every=3, validate_every=100, previews=0, keep_last=1, keep_steps=[6]
    )
    kill_at(28)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    assert steps_in(folder) == [6, 27]
    checkpoint_path(folder, 27).write_bytes(b"")
    kill_at(25)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run", resume=True)
    assert steps_in(folder) == [6, 24, 27]
    assert newest_checkpoint(folder)["step"] == 24


def test_where_no_checkpoint_can_be_read_no_run_starts_again(recipe, tmp_path, kill_at):
    """Days of metrics would be cut off."""
    kill_at(8)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    for step in steps_in(folder):
        checkpoint_path(folder, step).write_bytes(b"")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="none of the run's checkpoints can be used"):
        train(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_that_cannot_be_read_for_the_moment_is_not_passed_over(recipe, tmp_path, monkeypatch):
    train(recipe, tmp_path / "run")

    def load(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(UserError, match=r"step-0000012.pt: the checkpoint cannot be read \(Input/output error\)"):
        train(recipe, tmp_path / "run", resume=True)


def test_memory_that_a_checkpoint_lacks_is_no_damage(recipe, tmp_path, monkeypatch):
    train(recipe, tmp_path / "run")

    def load(*_, **__):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(UserError, match=r"step-0000012\.pt: the checkpoint does not fit into memory"):
        train(recipe, tmp_path / "run", resume=True)


@pytest.mark.parametrize("gone", ["deleted", "a file", "a link to nowhere"])
def test_where_the_checkpoints_are_gone_no_run_starts_again(gone, recipe, tmp_path):
    """A scratch disk that is not mounted, for instance."""
    train(recipe, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    shutil.move(folder, tmp_path / "elsewhere")
    if gone == "a file":
        folder.write_bytes(b"")
    if gone == "a link to nowhere":
        folder.symlink_to(tmp_path / "nowhere")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"its checkpoints are gone|not a folder, or currently unavailable"):
        train(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ((20, "b"), r"b has a checkpoint of step 20, and .*, which would write the next one, none after step 12"),
        ({"train.lr": 0.5}, r"rank 1 has train\.lr = 0\.5, rank 0 0\.02; start all machines with the same settings"),
        ({"train.checkpoint_every": 7}, r"rank 1 has train\.checkpoint_every = 7, rank 0 \d; start all machines"),
        ((4, "", []), r"data: rank 1 has 4 training images, rank 0 6, .*; all machines need the same data"),
    ],
    ids=["checkpoints", "settings", "when to save", "data"],
)
def test_machines_that_disagree_are_refused(other, sentence, recipe, tmp_path, monkeypatch):
    """Each may have a disk of its own, and is started by a command of its own."""
    train(recipe, tmp_path / "run")

    def gathered(_, mine):
        return [mine, mine | other if isinstance(mine, dict) else other] if type(mine) is type(other) else [mine]

    monkeypatch.setattr(claim, "gathered", gathered)
    with pytest.raises(UserError, match=sentence):
        train(recipe, tmp_path / "run", resume=True)


def test_a_validation_without_memory_loses_no_step(recipe, tmp_path, monkeypatch, command):
    def starved(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(validation, "score", starved)
        code, _, error = command("train", recipe, "train.checkpoint_every=100", "--out", tmp_path / "run")
    assert code == 2
    assert error.splitlines()[-1].startswith("error: not enough memory")
    assert steps_in(tmp_path / "run" / "checkpoints") == [6]
    code, _, error = command("train", recipe, "train.checkpoint_every=100", "--out", tmp_path / "run", "--resume")
    assert code == 0, error
    train(recipe, tmp_path / "truth")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "truth")


@pytest.mark.parametrize("call", ["fsync", "unlink"])
def test_the_disk_fails_around_a_checkpoint(call, recipe, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise NO_SPACE

    real = Trainer._save

    def save(self):
        with monkeypatch.context() as patch:
            if self.state.step == STEPS:
                patch.setattr(os if call == "fsync" else type(tmp_path), call, fail)
            real(self)

    monkeypatch.setattr(Trainer, "_save", save)
    with pytest.raises(UserError, match=rf"{tmp_path}/run/.*: cannot be .*\(No space left on device\)"):
        train(recipe, tmp_path / "run", "train.keep_last=1")


def test_a_second_ctrl_c_in_the_middle_of_a_checkpoint_is_one(tmp_path, monkeypatch):
    """Not the RuntimeError that torch makes of it."""

    class Interrupting(io.FileIO):
        calls = 0

        def write(self, data):
            self.calls += 1
            if self.calls == 4:  # once, among the weights; torch goes on to close its archive
                raise KeyboardInterrupt
            return super().write(data)

    monkeypatch.setattr(checkpoints, "open", lambda path, _: Interrupting(path, "w"), raising=False)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, 2, {"weights": torch.zeros(1_000_000)})
    assert os.listdir(tmp_path) == []


@pytest.fixture(params=["gone", "full"])
def nobody(request):
    """A file whose reader has gone, or that takes nothing."""
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") if request.param == "full" else os.fdopen(write, "w") as file:
        yield file


def test_words_that_nobody_reads_do_not_end_a_training(nobody, recipe, tmp_path, launch):
    code, _ = outcome(launch("train", recipe, "--out", tmp_path / "run", errors=nobody))
    assert code == 0
    assert description(tmp_path / "run")["status"] == "finished"


def test_a_closed_terminal_is_a_stop(tmp_path, launch):
    recipe = write_recipe(tmp_path, steps=4000, validate_every=4000, checkpoint_every=4000)
    process = launch("train", recipe, "--out", tmp_path / "run")
    assert until((tmp_path / "run" / "metrics.jsonl").exists)
    process.send_signal(signal.SIGHUP)
    code, output = outcome(process)
    assert code == 128 + signal.SIGHUP, output
    assert description(tmp_path / "run")["status"] == "stopped"


def test_a_terminal_that_goes_away_does_not_end_a_training(recipe, tmp_path):
    """With a progress bar, which is drawn on a terminal alone; a fork looked for one before it had this terminal."""
    master, slave = os.openpty()
    words = [sys.executable, "-m", "losspool", "train", recipe, "--out", tmp_path / "run", "train.steps=150"]
    words += ["train.validate_every=150", "train.checkpoint_every=150"]
    process = subprocess.Popen(words, env={**ENVIRONMENT, "TERM": "xterm"}, stderr=slave)
    os.close(slave)
    _read_until(master, b"loss")
    os.close(master)
    assert process.wait(timeout=180) == 0
    assert description(tmp_path / "run")["status"] == "finished"


def _read_until(descriptor, word):
    seen = b""
    while word not in seen:
        seen += os.read(descriptor, 1000)
    return seen


def test_an_evaluation_whose_reader_has_gone_is_written(nobody, recipe, tmp_path, launch):
    train(recipe, tmp_path / "run")
    words = ("evaluate", tmp_path / "run", "--model", "tiny_model.build")
    _, errors = outcome(launch(*words, output=nobody))
    assert "Traceback" not in errors
    assert len(list((tmp_path / "run").glob("evaluation-*.json"))) == 1


def test_a_rank_whose_output_is_closed_ends_well(tmp_path):
    code = f"""
import sys, torch
from losspool.segmentation.base.process import hard_exit
torch.distributed.init_process_group("gloo", init_method="file://{tmp_path}/meeting", rank=0, world_size=1)
sys.stdout = None
with hard_exit():
    sys.exit(5)
"""
    with Processes() as processes:
        assert outcome(processes.fork("plain_python", "-c", code))[0] == 5


def test_a_file_name_that_is_not_utf8(recipe, tmp_path):
    for kind in ("images", "labels"):
        folder = os.fsencode(tmp_path / "data" / kind / "val")
        os.rename(folder + b"/000.png", folder + b"/\xff0.png")
    train(recipe, tmp_path / "run", "train.previews=3")
    assert json.loads((tmp_path / "run" / "previews" / "names.json").read_text())[-1] == "\udcff0"
    assert description(tmp_path / "run")["status"] == "finished"


def test_nohup_is_heeded():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupt.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_killed_writer_left_in_the_folder_goes_with_the_resume(recipe, tmp_path, kill_at):
    kill_at(8)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run")
    left = [tmp_path / "run" / ".run.json.0123abcd.partial", tmp_path / "run" / "previews" / ".00.png.0123abcd.partial"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run", resume=True)
    assert not any(path.exists() for path in left)


LINES = {
    "deep": "[" * 200_000,
    "not a number": '{"step": 3, "split": "train", "loss": NaN}',
    "no split": '{"step": 3, "split": []}',
    "a step that is none": '{"step": true, "split": "val"}',
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_no_run_writes_is_named(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 2, "split": "train"}}\n{LINES[line]}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl: line 2 "):
        read_metrics(path)
