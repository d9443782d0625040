"""What earlier versions wrote still loads: ``tests/fixtures/run-0.1`` is a run of version 0.1, made by its own code.

The run is ``write_recipe(keep_last=3, keep_steps=[5])`` of ``runs_for_tests.py``, evaluated at the steps 5 and 12.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from losspool.lab.comparison import read_run
from losspool.segmentation.config import load_config
from losspool.segmentation.prediction import TrainedRun
from losspool.segmentation.runs import checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.training import Trainer
from runs_for_tests import assert_equal, metrics, write_recipe

FIXTURE = Path(__file__).parent / "fixtures" / "run-0.1"
TRUSTED = ["tiny_model.build"]
NEW_METRICS = ("grad_norm", "grad_norm_max")


@pytest.fixture
def old_run(tmp_path, monkeypatch):
    """A copy of the run, beside the data that its config names."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    shutil.copytree(FIXTURE, tmp_path / "run")
    return tmp_path / "run"


def test_every_checkpoint_loads_and_scores_as_it_did(old_run):
    run = TrainedRun.open(old_run, TRUSTED)
    assert steps_in(run.folder.checkpoints) == [5, 6, 10, 12]
    assert run.steps("best") == [6]
    stored = json.loads((FIXTURE / "evaluation-val-none-5+12.json").read_text())
    from losspool.segmentation.prediction.evaluation import evaluate_run

    found = evaluate_run(run, [5, 12], "val", run.config.evaluate).to_dict()
    for ours, theirs in zip(found["checkpoints"], stored["checkpoints"], strict=True):
        assert shared(ours, theirs) == theirs


def shared(ours, theirs):
    """What both hold, however deep: later versions may say more."""
    if isinstance(theirs, dict):
        return {key: shared(ours[key], value) for key, value in theirs.items()}
    if isinstance(theirs, list):
        return [shared(*pair) for pair in zip(ours, theirs, strict=True)]
    return ours


def test_a_run_that_stopped_goes_on_to_the_same_end(old_run):
    """From step 5 the resumed run ends with the weights, optimiser and metrics that version 0.1 ended with.

    Up to rounding: a later version may add up the loss in another order.
    """
    for step in (6, 10, 12):
        checkpoint_path(old_run / "checkpoints", step).unlink()
    trainer = Trainer(load_config(old_run / "config.yaml"), old_run, resume=True)
    assert trainer.state.step == 5
    trainer.run()
    for line, other in zip(metrics(old_run), metrics(FIXTURE), strict=True):
        kept = {key: value for key, value in line.items() if key not in NEW_METRICS}
        assert list(kept) == list(other)
        for key, value in kept.items():
            expected = other[key] if isinstance(value, str) else pytest.approx(other[key], rel=1e-4, abs=1e-4)
            assert value == expected, key
    ours, theirs = (read_checkpoint(checkpoint_path(folder / "checkpoints", 12)) for folder in (old_run, FIXTURE))
    for name in ("step", "validated", "spec", "classes"):
        assert_equal(shared(ours[name], theirs[name]), theirs[name], name)
    ours["window"] = ours["window"][: len(theirs["window"])]
    for name in ("model", "running", "window"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)
    momenta = [content["optimizer"]["state"] for content in (ours, theirs)]
    torch.testing.assert_close(*momenta, rtol=1e-4, atol=1e-5)


def test_a_finished_run_stays_finished(old_run):
    before = {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    Trainer(load_config(old_run / "config.yaml"), old_run, resume=True).run()
    after = {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    after.pop(old_run / ".lock")
    assert after.pop(old_run / "config.yaml")  # written again, perhaps with settings that are new
    assert after == {path: content for path, content in before.items() if path.name != "config.yaml"}


def test_the_lab_reads_it(old_run):
    run = read_run(old_run)
    assert list(run.validations) == [6, 12]
    assert set(run.scores("val")) == {5, 12}
