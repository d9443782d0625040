"""Loader workers that die or hang end the run with a sentence, in bounded time; none outlives the trainer."""

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import struct
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch
from torch.utils.data._utils import worker as torch_worker

from faults.bad_files import hang
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import SamplingConfig
from losspool.segmentation.data.augment import Augmentation
from losspool.segmentation.data.folder import open_folder
from losspool.segmentation.data.indexing import build_index
from losspool.segmentation.training.loader import crop_loader
from losspool.segmentation.training.sampling import CropSampler, DrawStream
from losspool.segmentation.training.workers import TICK, watched
from real_runs import Processes, alive, children, description, outcome, until
from runs_for_tests import checkpoint, train, write_recipe
from small_data import write_folder

TIMEOUT = 2
"""data.timeout of these runs, in seconds."""
SLACK = 8
"""Seconds beyond it, on a busy machine: looks, the last checkpoint."""
ENDLESS = 1_000_000


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
    assert output.count("\n") == 1
    told = description(out)
    assert checkpoint(out, told["step"])["step"] == told["step"] > 0  # not a step is lost
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == told["step"]
    return output


def test_a_worker_that_is_killed(training, tmp_path):
    process, workers = training()
    os.kill(workers[0], signal.SIGKILL)
    told = failed(process, tmp_path / "run", within=SLACK)
    assert f"error: a loader worker (process {workers[0]}) was killed by SIGKILL; " in told
    assert not any(map(alive, workers))


def test_a_worker_that_hangs(training, tmp_path):
    """Stopped, it hears neither the trainer's word nor SIGTERM; the batches it made ready cannot be fetched."""
    process, workers = training()
    os.kill(workers[0], signal.SIGSTOP)
    told = failed(process, tmp_path / "run", within=TIMEOUT + SLACK)
    assert "error: no batch came within data.timeout = 2 seconds: " in told
    assert not any(map(alive, workers))


def crops(folder, seed=0, last=ENDLESS, **options):
    """A loader with two workers that has given its first batch, and its sampler."""
    dataset = open_folder(write_folder(folder), "train")
    sampler = CropSampler(build_index(dataset), SamplingConfig(lag=9), seed)
    stream = DrawStream(sampler, batch=2, accumulate=1, rank=0, ranks=1, first=0, last=last)
    batches = crop_loader(dataset, Augmentation((24, 24)), stream, workers=2, lag=9, timeout=TIMEOUT, **options)
    next(batches)
    return batches, sampler


def exhaust(batches, sampler):
    for _ in batches:
        sampler.running.observe(torch.zeros(3, 3))


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


def die_with_a_lock(folder):
    """A worker asks whether it is done, and dies before it has let go of the lock that is needed to tell it."""
    real, trainer, asked = Event.is_set, os.getpid(), []

    def is_set(self):
        asked.append(self)
        if os.getpid() == trainer or len(asked) < 3:
            return real(self)
        with self._cond:
            os.kill(os.getpid(), signal.SIGKILL)

    Event.is_set = is_set
    batches, sampler = crops(Path(folder))
    with pytest.raises(UserError, match="was killed by SIGKILL"):
        exhaust(batches, sampler)
    del batches
    print("ended")


def die_in_a_message(folder, last=b"\0\0\1\0the beginning of 256 bytes"):
    """The thread that pins memory awaits the rest of it."""
    pin_without_a_device()
    loop = torch_worker._worker_loop

    def torn(*arguments):
        if arguments[10] == 1:  # the second worker
            time.sleep(0.5)
            arguments[3]._writer._send(last)
            os.kill(os.getpid(), signal.SIGKILL)
        loop(*arguments)

    torch_worker._worker_loop = torn
    batches, sampler = crops(Path(folder), pin=True)
    with pytest.raises(UserError, match="was killed by SIGKILL"):
        exhaust(batches, sampler)
    print("ended")


class Refused:
    """Like memory that is fetched from a process that has died."""

    def __reduce__(self):
        return os.stat, ("/nowhere/at/all",)


def die_after_a_message(folder):
    """The thread that pins memory finds nobody to fetch the batch from, and ends with an exception."""
    content = pickle.dumps(Refused())
    die_in_a_message(folder, struct.pack("!i", len(content)) + content)


def pin_without_a_device(patch=setattr):
    """What torch asks of an accelerator before it starts the thread that pins memory."""
    for name, found in {"is_available": True, "current_device_index": 0, "set_device_index": None}.items():
        patch(torch.accelerator, name, lambda *_, found=found: found)
    patch(torch.accelerator, "current_accelerator", lambda *_: torch.device("cpu"))
    patch(torch.Tensor, "pin_memory", lambda self, *_: self)


@pytest.mark.parametrize("death", [die_with_a_lock, die_in_a_message, die_after_a_message])
def test_what_a_dead_worker_held_is_not_waited_for(tmp_path, death):
    """In a process of its own, as it would hang for ever."""
    with Processes() as processes:
        code = f"import sys; from faults.test_workers import {death.__name__} as die; die(sys.argv[1])"
        code, told = outcome(processes.python("-c", code, tmp_path))
    assert code == 0
    assert "ended\n" in told  # beside it torch's thread that pins memory may print a traceback


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
    assert ended, set(threading.enumerate()) - before


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
    told = failed(process, tmp_path / "run", within=TIMEOUT + SLACK)
    assert "error: no batch came within data.timeout = 2 seconds: " in told
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
