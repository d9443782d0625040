"""The disk fills in the middle of a training: the last checkpoint is whole, the file is named, and it goes on later."""

import contextlib

import pytest

from losspool.segmentation.checkpoint import checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.errors import UserError
from losspool.segmentation.journal import MetricsFile, read_metrics
from real_runs import outcome
from runs_for_tests import assert_equal, checkpoint, metrics, train, write_recipe

STEPS = 30


@pytest.fixture
def undisturbed(tmp_path):
    def make(**settings):
        recipe = write_recipe(tmp_path, steps=STEPS, validate_every=STEPS, previews=0, **settings)
        train(recipe, tmp_path / "undisturbed")
        return recipe, tmp_path / "undisturbed"

    return make


def assert_ends_alike(launch, recipe, out, truth):
    code, output = outcome(launch("train", recipe, "--out", out, "--resume"))
    assert code == 0, output
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)


def size_of_a_checkpoint(run):
    return checkpoint_path(run / "checkpoints", STEPS).stat().st_size


def test_in_a_checkpoint(undisturbed, launch, disk):
    recipe, truth = undisturbed(checkpoint_every=5, log_every=STEPS, keep_last=100)
    disk.leave(round(2.6 * size_of_a_checkpoint(truth)) + 20_000)
    code, output = outcome(launch("train", recipe, "--out", disk.path / "run"))
    assert code == 2, output
    assert "Traceback" not in output
    kept = steps_in(disk.path / "run" / "checkpoints")
    assert kept
    assert kept[-1] < STEPS
    missing = checkpoint_path(disk.path / "run" / "checkpoints", kept[-1] + 5)
    assert f"error: {missing}: cannot be written (No space left on device)" in output
    for step in kept:
        assert_equal(read_checkpoint(checkpoint_path(disk.path / "run" / "checkpoints", step))["step"], step)
    assert not list((disk.path / "run" / "checkpoints").glob(".*"))
    disk.empty()
    assert_ends_alike(launch, recipe, disk.path / "run", truth)


def test_in_the_metrics(disk):
    file, written = MetricsFile(disk.path / "metrics.jsonl"), 0
    disk.leave(8_000)
    with contextlib.suppress(UserError):
        for step in range(1000):
            file.append({"step": step, "split": "train", "loss": 0.5, "iou": [0.1] * 20})
            written += 1
    assert 10 < written < 1000
    with pytest.raises(UserError, match=r"metrics.jsonl: cannot be written \(No space left on device\)"):
        file.append({"step": written, "split": "train", "loss": 0.5, "iou": [0.1] * 20})
    assert [entry["step"] for entry in read_metrics(disk.path / "metrics.jsonl")] == list(range(written))
    disk.empty()
    file.cut(written - 3, 0)  # as a resumed run does, back to its checkpoint
    file.append({"step": written - 2, "split": "train"})
    assert [entry["step"] for entry in read_metrics(disk.path / "metrics.jsonl")] == list(range(written - 1))


def test_wherever_it_happens(undisturbed, launch, disk):
    """With a line per step the metrics, the checkpoint or run.json may be the first to find no room."""
    recipe, truth = undisturbed(checkpoint_every=10, log_every=1)
    disk.leave(2 * size_of_a_checkpoint(truth) + 24_000)
    code, output = outcome(launch("train", recipe, "--out", disk.path / "run", "train.keep_last=1"))
    assert code == 2, output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: {disk.path / 'run'}/")
    assert line.endswith("cannot be written (No space left on device)")
    assert "Traceback" not in output
    disk.empty()
    assert_ends_alike(launch, recipe, disk.path / "run", truth)


def test_in_the_class_index(undisturbed, launch, disk):
    recipe, truth = undisturbed()
    disk.leave(100)
    code, output = outcome(
        launch("train", recipe, "--out", truth.with_name("run"), f"data.cache={disk.path / 'cache'}")
    )
    assert code == 0, output
    assert "cannot be written (No space left on device); the index will be built again next time" in output
    assert str(disk.path / "cache") in output
    assert metrics(truth.with_name("run")) == metrics(truth)
