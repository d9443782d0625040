"""One process at a time trains in a folder, and what it resumes from is the last that anyone wrote."""

import shutil
import threading
import time

import pytest

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs import RunLock, lock
from losspool.segmentation.runs.checkpoints import checkpoint_path
from losspool.segmentation.runs.folder import RunFolder
from losspool.segmentation.training import setup
from losspool.segmentation.training.trainer import Trainer
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
