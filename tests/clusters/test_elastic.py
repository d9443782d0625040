"""Training with any number of processes, and with a change on the way, ends with the same weights."""

import shutil

import numpy as np
import pytest
import torch

from losspool.segmentation.config import load_config
from losspool.segmentation.runs.checkpoints import checkpoint_path
from real_runs import Processes, description, outcome
from runs_for_tests import checkpoint, metrics, write_recipe
from small_data import VOID, save

STEPS, CHANGE = 40, 20
SETTINGS = (
    "method=lmp",
    "model.name=tiny_model.build_normed",
    "model.batch_norm=frozen",
    "train.global_batch=4",
    "train.batch=2",
    f"train.keep_steps=[{CHANGE}]",
)


def follow(processes, recipe, settings, out, ranks):
    command = ("train", recipe, *settings, "--out", out, "--resume")
    code, output = outcome(processes.launch(*command, ranks=ranks))
    assert code == 0, output
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A recipe, its settings, and the runs that 1, 2 and 4 processes make of it. Of six images, two are void."""
    from losspool.segmentation.training import Trainer  # not above: every process of the tests reads this file

    folder = tmp_path_factory.mktemp("elastic")
    recipe = write_recipe(folder, steps=STEPS, validate_every=STEPS, checkpoint_every=CHANGE, log_every=10, previews=0)
    for number in (1, 4):
        save(folder / "data" / "labels" / "train" / f"{number:03}.png", np.full((40, 60), VOID))
    torch.manual_seed(3)
    module = Trainer(load_config(recipe, SETTINGS), folder / "fresh").model.module
    module[1].running_mean.normal_()  # as they are, a frozen BatchNorm would do nothing
    module[1].running_var.uniform_(0.5, 2.0)
    torch.save(module.state_dict(), folder / "weights.pth")
    settings = (*SETTINGS, f"model.weights={folder / 'weights.pth'}")
    with Processes() as processes:
        found = {ranks: follow(processes, recipe, settings, folder / f"{ranks}", ranks) for ranks in (1, 2, 4)}
    moved = checkpoint(found[1], STEPS)["model"]
    assert max(float((moved[key] - value).abs().max()) for key, value in module.state_dict().items()) > 1e-2
    return recipe, settings, found


def assert_same(out, truth):
    ours, theirs = (checkpoint(each, STEPS)["model"] for each in (out, truth))
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, rtol=0, atol=1e-5)
    for line, other in zip(metrics(out), metrics(truth), strict=True):
        assert (line["step"], line["split"]) == (other["step"], other["split"])
        assert line["iou"] == pytest.approx(other["iou"], abs=1e-3)  # an arg-max may flip on a tie
        if "loss" in line:
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_any_number_of_processes_ends_with_the_same_weights(ranks, runs):
    *_, found = runs
    assert_same(found[ranks], found[1])
    assert description(found[ranks])["processes"] == ranks


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_and_so_does_a_change_in_the_middle(before, after, runs, tmp_path, launch):
    (recipe, settings, found), out = runs, tmp_path / "run"
    shutil.copytree(found[before], out)
    checkpoint_path(out / "checkpoints", STEPS).unlink()
    code, output = outcome(launch("train", recipe, *settings, "--out", out, "--resume", ranks=after))
    assert code == 0, output
    assert f"resumed at step {CHANGE} of {STEPS}" in output
    assert_same(out, found[1])
    assert description(out)["regrouped"] == [[CHANGE, before, after]]
