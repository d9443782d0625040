"""One process at a time trains in a folder, and what it resumes from is the last that anyone wrote."""

import errno
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time

import pytest

from losspool.lab.grids.tasks import Task, run_task
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs import RunLock, lock
from losspool.segmentation.runs.checkpoints import checkpoint_path
from losspool.segmentation.runs.folder import RunFolder
from losspool.segmentation.training import setup
from losspool.segmentation.training.trainer import Trainer
from real_runs import alive, kill
from runs_for_tests import metrics, train, write_recipe


def test_two_trainings_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    recipe, folder = write_recipe(tmp_path, steps=4), RunFolder(tmp_path / "run")
    with RunLock(folder.path).claim(), pytest.raises(UserError, match="run: another process is training in it"):
        train(recipe, folder.path)
    assert not folder.config.exists()
    train(recipe, folder.path)  # the folder is free again
    with RunLock(folder.path).claim(), pytest.raises(UserError, match="run: another process is training in it"):
        train(recipe, folder.path, resume=True)


def test_a_training_of_a_grid_waits_longer_for_a_lock(tmp_path, monkeypatch):
    """As on NFS, which keeps the lock of a machine that lost power for a while."""
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(f"#!/bin/sh\necho ${lock.PATIENCE_VARIABLE}\n")  # in a training's place
    (tmp_path / "python").chmod(0o755)
    log = tmp_path / "run.log"
    assert run_task(Task("run", (("train",),), log, tmp_path, tmp_path / ".stop", threads=1)).code == 0
    patience = log.read_text().splitlines()[-1]
    assert float(patience) > 90  # the lease of an NFS server
    held = RunLock(tmp_path / "run").claim()
    with pytest.raises(UserError, match="another process is training in it"):
        RunLock(tmp_path / "run").claim()
    monkeypatch.setenv(lock.PATIENCE_VARIABLE, patience)
    threading.Timer(0.5, held.release).start()
    RunLock(tmp_path / "run").claim().release()


def test_who_waits_resumes_from_what_was_saved_meanwhile(tmp_path):
    recipe = write_recipe(tmp_path, steps=12, checkpoint_every=4, keep_last=9, log_every=1)
    train(recipe, tmp_path / "truth")
    shutil.copytree(tmp_path / "truth", tmp_path / "run")
    folder, later = RunFolder(tmp_path / "run"), []
    for step in (8, 12):
        checkpoint_path(folder.checkpoints, step).unlink()

    def resume():
        later.append(Trainer(load_config(recipe), folder.path, resume=True))

    waiting = threading.Thread(target=resume)
    with RunLock(folder.path).claim():
        waiting.start()
        time.sleep(0.5)
        assert not later
        name = checkpoint_path(folder.checkpoints, 8).name
        shutil.copy(tmp_path / "truth" / "checkpoints" / name, folder.checkpoints / name)
    waiting.join(30)
    (trainer,) = later
    assert trainer.state.step == 8
    trainer.run()
    assert metrics(folder.path) == metrics(tmp_path / "truth")


def test_a_run_that_began_meanwhile_is_not_begun_again(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, steps=2)
    before = setup.class_index

    def slow(*arguments):
        monkeypatch.setattr(setup, "class_index", before)
        train(recipe, tmp_path / "run")  # somebody else, faster
        return before(*arguments)

    monkeypatch.setattr(setup, "class_index", slow)
    with pytest.raises(UserError, match="run: another process has just started this run"):
        train(recipe, tmp_path / "run")


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path):
    """A loader worker may outlive a trainer that was killed, for a moment."""
    fork, (reader, writer) = multiprocessing.get_context("fork"), multiprocessing.Pipe(duplex=False)

    def hold():
        held = RunLock(tmp_path / "run").claim()
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
        writer.send(child.pid)
        assert held.held
        os.kill(os.getpid(), signal.SIGKILL)

    process = fork.Process(target=hold)
    process.start()
    child = reader.recv()
    try:
        process.join()
        assert alive(child)
        began = time.monotonic()
        RunLock(tmp_path / "run").claim().release()
        assert time.monotonic() - began < lock.PATIENCE / 2
    finally:
        kill(child)


def test_a_file_system_without_locks_goes_without_one(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with RunLock(tmp_path / "run").claim() as held:
        assert held.held
