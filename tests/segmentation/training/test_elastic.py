"""With ``train.global_batch`` a run is the same for every number of processes, and may change it on the way."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from losspool.segmentation.base import UserError
from losspool.segmentation.config import TrainConfig, load_config
from losspool.segmentation.losses import Criterion, LossConfig
from losspool.segmentation.models import synchronised
from losspool.segmentation.runs.checkpoints import checkpoint_path, read_checkpoint, write_checkpoint
from losspool.segmentation.training import Trainer
from losspool.segmentation.training.loader import stack
from losspool.segmentation.training.micro_batches import MicroBatches
from losspool.segmentation.training.processes import join
from losspool.segmentation.training.sampling import Draw
from runs_for_tests import assert_equal, checkpoint, train, write_recipe
from small_data import VOID


def test_the_mean_is_over_all_images_that_have_a_valid_pixel():
    losses = np.array([0.5, 2.0, 3.0])  # two images, one, and none
    means = [losses[:2].mean(), losses[2], 0.0]
    split = MicroBatches(size=3, number=3, processes=1)
    factors = split.loss_factors([2, 1, 0], "image", None)
    assert np.mean(np.multiply(means, factors)) == pytest.approx(losses.mean())
    assert split.loss_factors([3, 3, 3], "image", None) == [1.0, 1.0, 1.0]  # nothing changes, to the bit
    assert split.loss_factors([0], "image", None) == [1.0]
    assert split.loss_factors([2, 1, 0], "batch", None) == [1.0, 1.0, 1.0]


def test_a_batch_counts_its_crops_that_have_a_valid_pixel():
    image, label = np.zeros((4, 4, 3), np.uint8), np.full((3, 4, 4), VOID, np.uint8)
    label[1, 2, 2] = 0
    assert stack([(image, each, Draw(0, 0), []) for each in label]).valid == 1


@pytest.mark.parametrize(
    ("whole", "batch", "processes", "split"),
    [(8, 2, 1, (2, 4)), (8, 2, 2, (2, 2)), (8, 2, 4, (2, 1)), (8, 2, 8, (1, 1)), (12, 4, 2, (3, 2)), (7, 4, 1, (1, 7))],
)
def test_micro_batches_have_at_most_the_batch_of_a_process(whole, batch, processes, split):
    found = MicroBatches.of(TrainConfig(global_batch=whole, batch=batch), processes)
    assert found[:2] == split
    assert found.crops == whole


@pytest.mark.parametrize(
    ("settings", "processes", "sentence"),
    [
        ({"global_batch": 7}, 4, "train.global_batch = 7 cannot be divided among 4 processes; the nearest .* is 8"),
        ({"global_batch": 9}, 4, "the nearest number that can is 8, and 9 can be divided among 1, 3, 9$"),
        ({"global_batch": 1}, 4, "the nearest number that can is 4"),
        (
            {"global_batch": 8, "accumulate": 2},
            4,
            "train.accumulate = 2 cannot be combined with train.global_batch = 8",
        ),
    ],
)
def test_a_batch_that_cannot_be_divided_is_refused(settings, processes, sentence):
    with pytest.raises(UserError, match=sentence):
        MicroBatches.of(TrainConfig(**settings), processes)


@pytest.mark.parametrize(
    ("scope", "before", "now", "sentence"),
    [
        ("image", ({}, 2), ({}, 1), "started with 2 processes, got 1; .* or with train.global_batch=8"),
        ("image", ({}, 2), ({"global_batch": 8}, 1), None),
        ("image", ({}, 2), ({"global_batch": 4}, 1), "its steps have 8 crops, train.global_batch says 4"),
        (
            "global",
            ({}, 2),
            ({"global_batch": 8}, 1),
            "run: its loss pooled 8 crops at a time so far; with 1 process and train.batch = 4 it would pool 4; set "
            "train.batch=8$",
        ),
        (
            "global",
            ({"batch": 2, "global_batch": 12}, 2),
            ({"batch": 2, "global_batch": 12}, 3),
            "so far; with 3 processes .* it would pool 6; resume it with 2 processes and train.batch=2$",
        ),
        ("global", ({}, 2), ({"global_batch": 8, "batch": 8}, 1), None),
        (
            "batch",
            ({}, 2),
            ({"global_batch": 8}, 1),
            "with 1 process these would be other crops than with 2; resume it with 2 processes$",
        ),
        ("image", ({}, 1), ({}, 2), "started with 1 process, got 2;"),
        ("batch", ({"batch": 1}, 2), ({"global_batch": 2, "batch": 1}, 1), None),
    ],
)
def test_what_a_step_is_made_of_stays(scope, before, now, sentence):
    earlier, split = (MicroBatches.of(TrainConfig(**settings), processes) for settings, processes in (before, now))
    if sentence is None:
        split.check_kept(earlier, TrainConfig(**now[0]), scope, Path("run"))
        return
    with pytest.raises(UserError, match=sentence):
        split.check_kept(earlier, TrainConfig(**now[0]), scope, Path("run"))


def test_a_run_that_began_without_it_goes_on_with_it(tmp_path):
    """To the bit, if the crops of its steps are named; its micro-batches may be of another size from then on."""
    recipe = write_recipe(tmp_path, keep_steps=[5])
    plain = ("model.name=tiny_model.build_plain", "train.accumulate=2")
    train(recipe, tmp_path / "run", *plain)
    truth = checkpoint(tmp_path / "run", 12)["model"]
    checkpoint_path(tmp_path / "run" / "checkpoints", 12).unlink()
    for step in (6, 10):
        checkpoint_path(tmp_path / "run" / "checkpoints", step).unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"its steps have 4 crops, train\.global_batch says 6"):
        train(recipe, tmp_path / "run", plain[0], "train.global_batch=6", resume=True)
    trainer = train(recipe, tmp_path / "run", plain[0], "train.global_batch=4", resume=True)
    assert trainer.state.regrouped is None
    assert_equal(checkpoint(tmp_path / "run", 12)["model"], truth)


@pytest.mark.parametrize(
    ("mode", "processes", "batch", "change"),
    [
        ("train", 1, 2, None),
        ("train", 1, 4, "4 crops at a time in 1 process instead of 2 crops at a time in 1 process"),
        ("train", 2, 2, "2 crops at a time in 1 process instead of 2 crops at a time in 2 processes"),
        ("frozen", 2, 2, None),
        ("sync", 2, 2, "2 crops at a time instead of 4 crops at a time"),
        ("sync", 2, 4, None),
    ],
)
def test_a_change_that_batch_norm_learns_from_is_reported(
    mode, processes, batch, change, tmp_path, monkeypatch, capsys
):
    """The run had ``train.batch=2``, and goes on in one process."""
    monkeypatch.setattr(
        "losspool.segmentation.training.setup.synchronised", lambda model, _: synchronised(model, torch.device("cuda"))
    )
    recipe = write_recipe(tmp_path, steps=5, validate_every=5)
    settings = ("model.name=tiny_model.build_normed", f"model.batch_norm={mode}", "train.global_batch=4")
    train(recipe, tmp_path / "run", *settings)
    folder = tmp_path / "run" / "checkpoints"
    write_checkpoint(folder, 5, {**read_checkpoint(checkpoint_path(folder, 5)), "processes": processes})
    capsys.readouterr()
    Trainer(load_config(recipe, (*settings, f"train.batch={batch}", "train.steps=6")), tmp_path / "run", resume=True)
    said = [line for line in capsys.readouterr().err.splitlines() if "BatchNorm" in line]
    outcome = "the weights will differ from those of an uninterrupted run"
    assert said == ([] if change is None else [f"warning: BatchNorm now learns from {change}; {outcome}"])


def test_before_the_first_checkpoint_the_batch_stays(tmp_path):
    """No checkpoint names the crops of a step yet, and the run starts over."""
    recipe = write_recipe(tmp_path, checkpoint_every=100)
    train(recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    about = tmp_path / "run" / "run.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "status": "running"}))  # as if it had been killed
    with pytest.raises(UserError, match=r"its train\.(batch is 2|global_batch is None), the command says"):
        train(recipe, tmp_path / "run", "train.global_batch=6", "train.batch=3", resume=True)


def test_machines_with_unequal_numbers_of_processes_are_refused(monkeypatch):
    for name, value in (("WORLD_SIZE", "3"), ("LOCAL_WORLD_SIZE", "2"), ("GROUP_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"2 of 3 processes on 2 machines; .* the same --nproc-per-node on all"):
        join("32-true", 60.0)


def test_hard_pixels_are_selected_by_each_process_with_any_scope():
    for scope in ("image", "batch", "global"):
        assert Criterion(LossConfig("ohem", scope=scope)).scope == "batch"
    assert Criterion(LossConfig("lmp", scope="global")).scope == "global"


def test_synchronised_batch_norm_is_refused_on_the_cpu(tmp_path, command):
    code, _, said = command("train", write_recipe(tmp_path), "model.batch_norm=sync", "--out", tmp_path / "run")
    assert code == 2
    assert said.endswith(
        "error: model.batch_norm=sync needs GPUs, and torch finds none; on the CPU, use train or frozen\n"
    )
    assert not (tmp_path / "run").exists()
