"""Trainings in processes of their own: several at once, and ended by signals."""

import os
import signal

import pytest
import torch

from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs.checkpoints import steps_in
from losspool.segmentation.training.trainer import Trainer
from real_runs import children, description, outcome, until
from runs_for_tests import checkpoint, metrics, train, write_recipe


@pytest.mark.parametrize(
    ("scope", "split"),
    [("image", ("train.batch=2",)), ("global", ("train.batch=2",)), ("image", ("train.batch=1", "train.accumulate=2"))],
)
def test_two_processes_with_half_the_batch_follow_one_with_the_whole(tmp_path, scope, split, launch):
    recipe = write_recipe(tmp_path)
    shared = (
        "method=lmp",
        f"loss.scope={scope}",
        "model.name=tiny_model.build_plain",  # without BatchNorm, whose statistics depend on the split
        "train.lr=0.01",
        "train.steps=20",
        "train.validate_every=20",
        "train.checkpoint_every=20",
        "train.log_every=5",
    )
    fresh = Trainer(load_config(recipe, shared), tmp_path / "fresh").model.module.state_dict()
    train(recipe, tmp_path / "one", *shared, "train.batch=4")
    process = launch("train", recipe, *shared, *split, "--out", tmp_path / "two", ranks=2)
    code, output = outcome(process)
    assert code == 0, output
    ours, theirs = (checkpoint(tmp_path / name, 20) for name in ("one", "two"))
    for key, value in theirs["model"].items():
        torch.testing.assert_close(value, ours["model"][key], rtol=0, atol=1e-5)
    moved = max(float((value - fresh[key]).abs().max()) for key, value in ours["model"].items())
    assert moved > 1e-3
    for line, other in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert (line["step"], line["split"]) == (other["step"], other["split"])
        assert line["iou"] == pytest.approx(other["iou"], abs=1e-3)  # an arg-max may flip on a tie
        if line["split"] == "train":
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
            assert line["saturated"] == pytest.approx(other["saturated"], abs=0.01)
    assert description(tmp_path / "two")["processes"] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_a_line_that_says_how_to_go_on(tmp_path, number, code, launch):
    """And going on as it says ends where the undisturbed run ends; no process is left."""
    recipe = write_recipe(tmp_path, steps=4000, validate_every=4000, checkpoint_every=4000)
    arguments = ["train", recipe, "data.workers=2", "--out", tmp_path / "run"]
    process = launch(*arguments)
    assert until((tmp_path / "run" / "metrics.jsonl").exists)
    process.send_signal(number)
    returned, output = outcome(process)
    assert returned == code, output
    assert "stopped at step" in output
    line = next(line for line in output.splitlines() if "resume with: losspool train" in line)
    assert line.endswith(f"--out {tmp_path / 'run'} --resume")
    assert "Traceback" not in output
    described = description(tmp_path / "run")
    assert described["status"] == "stopped"
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"step-{described['step']:07d}.pt"]
    assert not process.family()


def test_a_signal_to_the_whole_group_is_a_stop_too(tmp_path, launch):
    """Batch systems signal every process of a job, the loader's workers among them."""
    recipe = write_recipe(tmp_path, steps=4000, validate_every=4000, checkpoint_every=4000)
    arguments = ["train", recipe, "data.workers=2", "--out", tmp_path / "run"]
    process = launch(*arguments)
    assert until((tmp_path / "run" / "metrics.jsonl").exists)
    os.killpg(process.pid, signal.SIGTERM)
    code, output = outcome(process)
    assert code == 143, output
    assert "Traceback" not in output
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1


def test_a_signal_to_one_rank_stops_all_after_the_same_step(tmp_path, launch):
    recipe = write_recipe(tmp_path, steps=4000, validate_every=4000, checkpoint_every=4000)
    process = launch("train", recipe, "train.batch=1", "--out", tmp_path / "run", ranks=2)
    assert until((tmp_path / "run" / "metrics.jsonl").exists)
    os.kill(max(children(process.pid)), signal.SIGTERM)  # rank 1; rank 0 writes the checkpoint
    code, output = outcome(process)
    assert code == 143, output
    described = description(tmp_path / "run")
    assert described["status"] == "stopped"
    assert steps_in(tmp_path / "run" / "checkpoints") == [described["step"]]


def test_a_loss_that_is_not_finite_ends_all_ranks_with_the_images(tmp_path, launch):
    recipe = write_recipe(tmp_path)
    process = launch("train", recipe, "train.lr=1e30", "--out", tmp_path / "run", ranks=2)
    code, output = outcome(process)
    assert code != 0
    assert "the loss is not finite at step 2, on the images 00" in output


MISTAKES = {
    ("train.step=5",): "error: unknown key 'train.step'; did you mean 'train.steps'?",
    ("train.steps=abc",): "error: train.steps must be a whole number, got 'abc'",
    ("data.root=/nowhere",): "error: /nowhere: the root of the data does not exist; set data.root\n",
    ("data.train=other",): "other: no such folder, and no list other.txt in",
    ("model.name=deeplabv2_resnet19",): "error: model.name must be one of deeplabv2_resnet101,",
    ("model.weights=no.pth", "model.name=deeplabv2_resnet18"): "no.pth: no such weights file; set model.weights (null",
}


@pytest.mark.parametrize("overrides", MISTAKES, ids=" ".join)
def test_mistakes_end_in_one_sentence_and_exit_code_2(tmp_path, overrides, command):
    code, _, reported = command("train", write_recipe(tmp_path), *overrides, "--out", tmp_path / "run")
    assert code == 2
    assert MISTAKES[overrides] in reported
    assert reported.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_folder_that_exists(tmp_path, command):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    train(recipe, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for more, reported in {
        (): "the run exists; pass --resume to resume it, or another folder with --out",
        ("--resume", "train.lr=0.5"): "its train.lr is 0.02, the command says 0.5",
        ("--resume", "model.name=tiny_model.build_plain"): "its model.name is 'tiny_model.build', the command says",
    }.items():
        code, _, error = command("train", recipe, *more, "--out", out)
        assert code == 2
        assert reported in error
        assert error.count("\n") == 1
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    code, _, error = command("train", recipe, "--out", tmp_path / "other")
    assert (code, "the folder holds other files" in error) == (2, True)


def test_a_checkpoint_of_another_model(tmp_path, command):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    train(recipe, out)
    (out / "config.yaml").write_text(
        (out / "config.yaml").read_text().replace("tiny_model.build", "tiny_model.build_plain")
    )
    more = ("model.name=tiny_model.build_plain", "--resume", "--out", out)
    (out / "run.json").write_text('{"status": "stopped"}')
    code, _, error = command("train", recipe, *more)
    assert code == 2
    assert "its checkpoint is of tiny_model.build with 3 classes, the run is of tiny_model.build_plain" in error
