"""Trackers get every number and preview of a run, through the one interface that all of them have."""

import sys

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.config import dump_config, load_config
from losspool.segmentation.runs import trackers
from losspool.segmentation.runs.trackers import TRACKERS, MLflow
from runs_for_tests import metrics, train, write_recipe

CLASSES = ("soil", "weed", "crop plant")


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self, run_id="new", fails_at=None):
        self.run_id, self.values, self.pictures, self.status, self.fails_at = run_id, {}, {}, None, fails_at

    def numbers(self, step, values):
        if step == self.fails_at:
            raise ConnectionError("the server is down\nand so on")
        self.values |= {(step, name): value for name, value in values.items()}

    def image(self, step, name, image):
        self.pictures[step, name] = np.asarray(image)

    def close(self, status):
        self.status = status


@pytest.fixture
def recorded(monkeypatch):
    """W&B is a recorder; all that were opened."""
    opened = []

    def open_one(library, folder, config, run_id):
        assert library is sys
        opened.append(Recorder(run_id or f"run-{len(opened)}"))
        return opened[-1]

    monkeypatch.setitem(TRACKERS, "wandb", trackers._Kind("sys", "wandb", open_one))
    return opened


def expected_numbers(lines):
    """All numbers of the lines, by hand."""
    found = {}
    for line in lines:
        where = line["step"], line["split"]
        for name in set(line) - {"step", "split"}:
            value = line[name]
            entries = zip(CLASSES, value, strict=True) if isinstance(value, list) else [(None, value)]
            for label, number in entries:
                if isinstance(number, int | float):
                    found[where[0], f"{where[1]}/{name}" + (f"/{label}" if label else "")] = number
    return found


def test_a_tracker_gets_every_number_and_preview(recorded, tmp_path):
    out = tmp_path / "run"
    train(write_recipe(tmp_path), out, "train.trackers=[wandb]")
    (tracker,) = recorded
    expected = expected_numbers(metrics(out))
    assert tracker.values == expected
    assert {(4, "train/alpha"), (4, "train/saturated"), (4, "train/mass/weed"), (12, "val/iou/crop plant")} <= set(
        expected
    )
    assert tracker.status == "finished"
    for name, suffix in (("previews/00", ""), ("weights/00", "-weights")):
        file = out / "previews" / f"00-step-0000012{suffix}.png"
        assert np.array_equal(tracker.pictures[12, name], np.asarray(Image.open(file).convert("RGB")))


def test_a_resumed_run_goes_on_in_the_tracker(recorded, tmp_path):
    recipe, out = write_recipe(tmp_path, steps=4), tmp_path / "run"
    train(recipe, out, "train.trackers=[wandb]")
    train(recipe, out, "train.trackers=[wandb]", "train.steps=8", resume=True)
    assert [tracker.run_id for tracker in recorded] == ["run-0", "run-0"]
    assert recorded[0].values | recorded[1].values == expected_numbers(metrics(out))
    train(recipe, out, "train.steps=9", resume=True)  # trackers may be left out
    assert len(recorded) == 2


def test_a_failing_tracker_does_not_end_the_run(monkeypatch, capsys, tmp_path):
    tracker = Recorder(fails_at=4)
    monkeypatch.setitem(TRACKERS, "mlflow", trackers._Kind("sys", "mlflow", lambda *args: tracker))
    train(write_recipe(tmp_path, steps=8), tmp_path / "run", "train.trackers=[mlflow]")
    assert capsys.readouterr().err.count("mlflow failed (the server is down); the run goes on without it") == 1
    assert len(metrics(tmp_path / "run")) == 4
    assert (tracker.values, tracker.status) == ({}, None)


def test_what_cannot_start_is_one_sentence(monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^train\.trackers: wandb needs its library: pip install wandb$"):
        train(recipe, tmp_path / "a", "train.trackers=[wandb]")
    assert not (tmp_path / "a").exists()

    def without_key(*args):
        raise ValueError("no API key\nlog in")

    monkeypatch.setitem(TRACKERS, "wandb", trackers._Kind("sys", "wandb", without_key))
    with pytest.raises(UserError, match=r"^train\.trackers: wandb does not start \(no API key\)$"):
        train(recipe, tmp_path / "b", "train.trackers=[wandb]")
    with pytest.raises(UserError, match=r"train\.trackers\[0\] must be one of tensorboard, wandb, mlflow, got"):
        load_config(recipe, ["train.trackers=[neptune]"])


def test_tensorboard_by_its_old_key(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    assert "tensorboard: " not in dump_config(load_config(recipe, ["train.tensorboard=true"]))
    assert load_config(recipe, ["train.tensorboard=false"]).train.trackers == ()
    with pytest.raises(UserError, match=r"train\.tensorboard is the old name of train\.trackers; state only"):
        load_config(recipe, ["train.tensorboard=true", "train.trackers=[]"])
    train(recipe, out, "train.tensorboard=true")
    events = accumulator.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    found = {(e.step, tag): e.value for tag in events.Tags()["scalars"] for e in events.Scalars(tag)}
    assert found == pytest.approx(expected_numbers(metrics(out)))
    assert [event.step for event in events.Images("weights/00")] == [6, 12]


def test_mlflow_gets_names_that_it_takes():
    assert MLflow._name("train/mass/weed (öl) <2>: a") == "train/mass/weed _öl_ _2__ a"
