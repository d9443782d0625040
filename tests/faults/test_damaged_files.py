"""Files that a crash left in pieces: each is recognised by name, and the resumed run ends with the undisturbed bits."""

import shutil

import pytest
import torch

from losspool.segmentation.runs.checkpoints import _checksum, checkpoint_path, steps_in
from losspool.segmentation.runs.run_log import read_metrics
from runs_for_tests import assert_equal, checkpoint, metrics, train, write_recipe

STEPS = 12


def of_another_version(path):
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 0}, path)


CHECKPOINTS = {
    "empty": (lambda path: path.write_bytes(b""), "the checkpoint is damaged"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "the checkpoint is damaged"),
    "noise": (lambda path: path.write_bytes(bytes(range(256)) * 50), "the checkpoint is damaged"),
    "older version": (of_another_version, "a checkpoint of format 0; this version reads format 1"),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A recipe, and the run that it makes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    recipe = write_recipe(folder, steps=STEPS, checkpoint_every=5, log_every=1, keep_last=3)
    train(recipe, folder / "run")
    return recipe, folder / "run"


@pytest.fixture
def stopped(undisturbed, tmp_path):
    """A run as a kill leaves it between steps 10 and 12, and the undisturbed one."""
    recipe, truth = undisturbed
    shutil.copytree(truth, tmp_path / "run")
    checkpoint_path(tmp_path / "run" / "checkpoints", STEPS).unlink()
    assert steps_in(tmp_path / "run" / "checkpoints")[-1] == 10
    return recipe, tmp_path / "run", truth


def assert_resumes(stopped):
    recipe, out, truth = stopped
    train(recipe, out, resume=True)
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_the_newest_checkpoint(kind, stopped, capsys):
    damage, reported = CHECKPOINTS[kind]
    path = checkpoint_path(stopped[1] / "checkpoints", 10)
    damage(path)
    assert_resumes(stopped)
    said = capsys.readouterr().err.replace("\n", "")
    assert f"skipped: {path}: {reported}" in said
    assert "resumed at step 6 of 12" in said  # the best one; 5 is older


def crafted(path, change):
    """With a checksum that is right."""
    content = torch.load(path, weights_only=True)["content"]
    content = change(content)
    torch.save({"format": 1, "checksum": _checksum(content), "content": content}, path)


CRAFTED = {
    "a list": lambda content: [content],
    "a sparse tensor": lambda content: {**content, "window": torch.eye(3).to_sparse()},
    "no weights": lambda content: {key: value for key, value in content.items() if key != "model"},
    "other weights": lambda content: {**content, "model": {"other": torch.zeros(2)}},
    "no optimiser": lambda content: {**content, "optimizer": 3},
    "no spec": lambda content: {**content, "spec": "unet"},
    "a step in words": lambda content: {**content, "step": "six"},
    "a step before the first": lambda content: {**content, "step": -1},
    "a step after the last": lambda content: {**content, "step": 1000},
    "a best one of another kind": lambda content: {**content, "best": "six"},
    "no last validation": lambda content: {**content, "validated": None},
    "a time in words": lambda content: {**content, "seconds": "long"},
    "a window of another length": lambda content: {**content, "window": torch.zeros(3, 3)},
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_a_checkpoint_that_no_run_writes(kind, stopped, command):
    recipe, out, _ = stopped
    folder = out / "checkpoints"
    for step in steps_in(folder):
        path = checkpoint_path(folder, step)
        try:
            crafted(path, CRAFTED[kind])
        except (RuntimeError, TypeError):  # no checksum can be had of it
            content = torch.load(path, weights_only=True)["content"]
            torch.save({"format": 1, "checksum": "0" * 64, "content": CRAFTED[kind](content)}, path)
    code, _, reported = command("train", recipe, "--out", out, "--resume")
    assert code == 2
    assert "Traceback" not in reported
    assert f"error: {folder}" in reported.splitlines()[-1]


@pytest.mark.parametrize(
    "torn", ['{"step": 11, "split": "tra', '{"step": 11', "\x00\x00\x00", '{"step": 11, "split": "train"}']
)
def test_the_last_line_of_the_metrics(torn, stopped):
    path = stopped[1] / "metrics.jsonl"
    whole = len(read_metrics(path))
    with open(path, "a") as file:
        file.write(torn)
    assert len(read_metrics(path)) - whole == torn.endswith("}")
    assert_resumes(stopped)


def test_a_cache_and_a_checkpoint_that_were_being_written(stopped):
    caches = stopped[0].parent / "cache"
    for folder in (caches, stopped[1] / "checkpoints"):
        (folder / ".leftover.12345678.partial").write_bytes(b"half")
    (cache,) = (path for path in caches.iterdir() if path.suffix == ".safetensors")
    cache.write_bytes(cache.read_bytes()[:-9])
    assert_resumes(stopped)
    assert not list((stopped[1] / "checkpoints").glob(".*"))
