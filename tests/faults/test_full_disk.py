"""The disk fills in the middle of a training: the last checkpoint is whole, the file is named, and it goes on later."""

import builtins
import contextlib
import errno
import io
import os

import pytest

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.runs.checkpoints import checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.runs.run_log import MetricsFile, read_metrics
from real_runs import description, outcome
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe

STEPS = 30
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


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


def test_in_the_metrics_of_a_run(undisturbed, launch, disk):
    """Once the checkpoint of step 5 is written, nothing but they grow."""
    recipe, truth = undisturbed(checkpoint_every=STEPS, keep_steps=[5], log_every=1)
    disk.leave(size_of_a_checkpoint(truth) + (truth / "metrics.jsonl").stat().st_size // 2 + 16_000)
    code, output = outcome(launch("train", recipe, "--out", disk.path / "run"))
    *progress, error = output.splitlines()
    assert (code, error) == (2, f"error: {disk.path}/run/metrics.jsonl: cannot be written (No space left on device)")
    assert all(line.startswith("step ") for line in progress)
    assert checkpoint(disk.path / "run", 5)["step"] == 5
    disk.empty()
    assert_ends_alike(launch, recipe, disk.path / "run", truth)


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


class Full(io.FileIO):
    """A file on a disk without room: a piece is written, and no more."""

    def write(self, data):
        super().write(bytes(data)[:10])
        raise NO_SPACE


def without_room(patch, begin):
    """Writing a file whose name begins so fails, however it is opened."""
    real = open

    def opening(file, mode="r", *arguments, **options):
        if not set(mode) & set("wa+") or not str(file).rpartition("/")[2].startswith(begin):
            return real(file, mode, *arguments, **options)
        raw = io.BufferedWriter(Full(file, "a" if "a" in mode else "w"))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8")

    patch.setattr(builtins, "open", opening)
    patch.setattr(io, "open", opening)  # which Path uses


def without_sync(patch, begin):
    """The system takes it all, and finds out that there is no room when it must be on disk."""
    real = os.fsync

    def syncing(descriptor):
        if os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).startswith(begin):
            raise NO_SPACE
        real(descriptor)

    patch.setattr(os, "fsync", syncing)


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """A recipe, and the run that it makes where every file can be written."""
    folder = tmp_path_factory.mktemp("truth")
    recipe = write_recipe(folder, steps=STEPS, checkpoint_every=5, validate_every=STEPS, log_every=5)
    train(recipe, folder / "undisturbed")
    return recipe, folder / "undisturbed"


@pytest.mark.parametrize("fault", [without_room, without_sync])
@pytest.mark.parametrize(
    ("begin", "named"),
    [
        (".step-", "checkpoints/step-0000010.pt"),
        ("metrics", "metrics.jsonl"),
        (".run.json", "run.json"),
        (".00-step", "previews/00-step-0000030.png"),
    ],
)
def test_where_no_disk_can_be_mounted(truth, tmp_path, monkeypatch, begin, named, fault):
    """The same law, by writers that fail from step 6 on: the file is named, what was saved is whole, and it goes on."""
    (recipe, undisturbed), out = truth, tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 6, lambda: fault(patch, begin))
        with pytest.raises(UserError) as caught:
            train(recipe, out)
    assert str(caught.value) == f"{out / named}: cannot be written (No space left on device)"
    kept = steps_in(out / "checkpoints")
    assert kept
    for step in kept:
        assert checkpoint(out, step)["step"] == step
    assert not list(out.rglob(".*.partial"))
    train(recipe, out, resume=True)
    assert_equal(checkpoint(out, STEPS), checkpoint(undisturbed, STEPS))
    assert metrics(out) == metrics(undisturbed)
    assert description(out)["status"] == "finished"
