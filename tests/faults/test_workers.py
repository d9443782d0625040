"""Loader workers that die or hang end the run with a sentence, in bounded time; none outlives the trainer."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch

from faults.bad_files import hang
from faults.dying_workers import ENDLESS, TIMEOUT, crops, exhaust, pin_without_a_device
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.training.workers import TICK, watched
from real_runs import Processes, alive, children, description, outcome, until
from runs_for_tests import checkpoint, train, write_recipe

SLACK = 8
"""Seconds beyond it, on a busy machine: looks, the last checkpoint."""


@pytest.fixture
def training(tmp_path, launch):
    """Starts a run, and returns its process and its workers' ids once it has made a few steps."""

    def start(workers=2):
        recipe = write_recipe(
            tmp_path, steps=ENDLESS, validate_every=ENDLESS, checkpoint_every=ENDLESS, log_every=1, batch=2
        )
        options = (f"data.workers={workers}", f"data.timeout={TIMEOUT}", "--out", tmp_path / "run")
        process = launch("train", recipe, *options)
        assert until((tmp_path / "run" / "metrics.jsonl").exists)
        found = children(process.pid)
        assert len(found) == workers
        return process, found

    return start


def failed(process, out, within):
    """The sentence of a run that must fail, with everything in order: state saved, one line said."""
    began = time.monotonic()
    assert until(lambda: description(out)["status"] == "failed", within)
    took = time.monotonic() - began
    code, output = outcome(process)
    print(f"\n{took:.2f} s: {output.strip()}")  # seen with pytest -s
    assert code == 2, output
    assert [line for line in output.splitlines() if not line.startswith("step ")] == output.splitlines()[-1:]
    described = description(out)
    assert checkpoint(out, described["step"])["step"] == described["step"] > 0  # not a step is lost
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == described["step"]
    return output


def test_a_worker_that_is_killed(training, tmp_path):
    process, workers = training()
    os.kill(workers[0], signal.SIGKILL)
    sentence = failed(process, tmp_path / "run", within=SLACK)
    assert f"error: a loader worker (process {workers[0]}) was killed by SIGKILL; " in sentence
    assert not any(map(alive, workers))


def test_a_worker_that_hangs(training, tmp_path):
    """Stopped, it hears neither the trainer's word nor SIGTERM; the batches it made ready cannot be fetched."""
    process, workers = training()
    os.kill(workers[0], signal.SIGSTOP)
    sentence = failed(process, tmp_path / "run", within=TIMEOUT + SLACK)
    assert "error: no batch came within data.timeout = 2 seconds: " in sentence
    assert not any(map(alive, workers))


def test_a_worker_that_is_killed_at_any_moment(tmp_path):
    """Between two batches, in the middle of a message, or as its memory is handed over: the sentence is the same."""
    for moment in range(15):
        batches, sampler = crops(tmp_path, seed=moment)
        sampler.running.observe(torch.zeros(3, 3))
        worker = children(os.getpid())[-1]
        struck = threading.Timer(0.003 * moment, os.kill, (worker, signal.SIGKILL))
        struck.start()
        with pytest.raises(UserError, match=rf"a loader worker \(process {worker}\) was killed by SIGKILL"):
            exhaust(batches, sampler)
        struck.join()
        assert children(os.getpid()) == []


def test_a_signal_without_a_name(tmp_path):
    batches, sampler = crops(tmp_path)
    os.kill(children(os.getpid())[-1], 35)
    with pytest.raises(UserError, match="was killed by signal 35; "):
        exhaust(batches, sampler)


def test_what_a_dead_worker_held_is_not_waited_for(tmp_path):
    with Processes() as processes:
        code, output = outcome(processes.fork("faults.dying_workers", tmp_path))
    assert code == 0, output
    for death in ("die_with_a_lock", "die_in_a_message", "die_after_a_message"):
        assert f"{death}\n" in output  # beside it torch's thread that pins memory may print a traceback


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # torch's pinning thread may raise
@pytest.mark.parametrize("moment", ["early", "at the end", 0, 0.01])
def test_no_thread_is_left(tmp_path, monkeypatch, moment):
    """However the loader ends: in order, or by the death of a worker at any moment."""
    pin_without_a_device(monkeypatch.setattr)
    before = set(threading.enumerate())
    batches, sampler = crops(tmp_path, last=20 if moment == "at the end" else ENDLESS, pin=True)
    assert any("_pin_memory_loop" in thread.name for thread in threading.enumerate())
    if moment == "at the end":
        exhaust(batches, sampler)
    elif moment != "early":
        threading.Timer(moment, os.kill, (children(os.getpid())[-1], signal.SIGKILL)).start()
        with pytest.raises(UserError, match="was killed by SIGKILL"):
            exhaust(batches, sampler)
    batches.close()
    ended = until(lambda: set(threading.enumerate()) <= before, SLACK)
    # A killed worker may have held a lock for which torch's shutdown then waits, in a thread that holds up nobody.
    killed = moment not in ("early", "at the end")
    assert ended or (killed and all(each.daemon for each in set(threading.enumerate()) - before))


def test_the_alarm_is_not_taken_for_a_fault_of_a_file():
    """One image of a batch hangs, then the next one does."""

    def hangs():
        for _ in range(2):
            with contextlib.suppress(Exception):
                time.sleep(60)
        yield

    began = time.monotonic()
    with pytest.raises(UserError, match="no batch came within"):
        next(watched(hangs(), TICK))
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize("workers", [0, 2])
def test_a_read_that_blocks(training, tmp_path, workers):
    process, found = training(workers)
    for image in sorted((tmp_path / "data" / "images" / "train").iterdir()):
        hang(image)
    sentence = failed(process, tmp_path / "run", within=TIMEOUT + SLACK)
    assert "error: no batch came within data.timeout = 2 seconds: " in sentence
    assert not any(map(alive, found))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_worker_outlives_the_trainer(training, number, code):
    process, workers = training()
    process.send_signal(number)
    returned, output = outcome(process)
    assert returned == code, output
    # One that was asked to stop has ended its workers before itself.
    assert until(lambda: not any(map(alive, workers)), 1 if number == signal.SIGKILL else 0)


def test_a_worker_that_hangs_does_not_outlive_a_trainer_that_is_killed(training):
    process, workers = training()
    os.kill(workers[0], signal.SIGSTOP)
    process.kill()
    outcome(process)
    assert until(lambda: not any(map(alive, workers)), 1)


def test_a_wish_to_stop_is_heard_while_a_worker_hangs(training, tmp_path):
    """Within the timeout, like everything else that waits for a batch; nothing is lost and nobody left."""
    process, workers = training()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    code, output = outcome(process)
    assert code in (2, 143), output  # the step was waiting for a batch, or could be ended
    assert time.monotonic() - began < TIMEOUT + SLACK
    assert not any(map(alive, workers))
    step = description(tmp_path / "run")["step"]
    assert checkpoint(tmp_path / "run", step)["step"] == step


def test_workers_that_cannot_be_started_leave_none_behind(tmp_path, monkeypatch):
    """Too many processes or open files, after some have been started."""
    real, started = multiprocessing.Process.start, []

    def start(self):
        if started:
            raise OSError(24, "Too many open files")
        started.append(self)
        real(self)

    monkeypatch.setattr("torch.multiprocessing.Process.start", start)
    with pytest.raises(UserError, match=r"the data.workers cannot be started \(\[Errno 24\] Too many open files\)"):
        train(write_recipe(tmp_path), tmp_path / "run", "data.workers=2")
    assert [each.is_alive() for each in started] == [False]
