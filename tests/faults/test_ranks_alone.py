"""Ranks whose launcher is gone, or that fail alone."""

import os
import signal

from losspool.segmentation.runs.checkpoints import steps_in
from real_runs import alive, description, outcome, ranks, until
from runs_for_tests import checkpoint, write_recipe


def test_a_launcher_that_is_killed_leaves_no_rank(tmp_path, torchrun):
    """They save what they have, and the folder is free for the next."""
    recipe = write_recipe(tmp_path, steps=4000, validate_every=4000, checkpoint_every=4000)
    arguments = ("train", recipe, "train.batch=1", "--out", tmp_path / "run")
    launcher = torchrun(*arguments)
    assert until((tmp_path / "run" / "metrics.jsonl").exists)
    both = ranks(launcher).values()
    assert len(both) == 2
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert until(lambda: not any(map(alive, both)), 30)
    outcome(launcher)
    assert description(tmp_path / "run")["status"] == "stopped"
    assert steps_in(tmp_path / "run" / "checkpoints") == [description(tmp_path / "run")["step"]]


def test_a_rank_that_fails_in_a_validation_ends_all(tmp_path, launch):
    recipe = write_recipe(tmp_path)
    os.truncate(tmp_path / "data" / "images" / "val" / "001.png", 60)  # read by one of two ranks
    code, output = outcome(launch("train", recipe, "train.batch=1", "--out", tmp_path / "run", ranks=2))
    assert code != 0
    assert "001.png: the image cannot be decoded" in output
    assert checkpoint(tmp_path / "run", 6)["validated"] == 0  # what was trained before the validation is not lost
