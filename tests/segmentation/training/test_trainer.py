"""Laws of the trainer: what is stopped and resumed, accumulated or split over processes trains the same network."""

import json
import re
import signal
from functools import partial

import numpy as np
import pytest
import torch
import yaml

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.base.process import Interrupted
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.config.schema import LOSSES, METHODS
from losspool.segmentation.models import unet
from losspool.segmentation.runs.checkpoints import read_checkpoint, write_checkpoint
from losspool.segmentation.training.trainer import Trainer
from runs_for_tests import assert_equal, checkpoint, metrics, train, write_recipe
from shared_data import shared_data
from small_data import CLASSES, VOID, save, write_classes


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


def stopped_at(recipe, out, step, monkeypatch, *overrides, number=signal.SIGTERM):
    """Train until a signal arrives during ``step``."""
    trainer = Trainer(load_config(recipe, overrides), out)
    with monkeypatch.context() as patch:
        real = Trainer._step

        def struck(self, batches, interrupt):
            if self.state.step == step - 1:
                signal.raise_signal(number)
            return real(self, batches, interrupt)

        patch.setattr(Trainer, "_step", struck)
        with pytest.raises(Interrupted) as caught:
            trainer.run()
    assert caught.value.signal == number


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [3, 8])
def test_a_stop_and_a_resume_change_nothing(recipe, tmp_path, monkeypatch, workers, stop):
    overrides = (f"data.workers={workers}",)
    train(recipe, tmp_path / "whole", *overrides)
    stopped_at(recipe, tmp_path / "parts", stop, monkeypatch, *overrides)
    state = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert (state["status"], state["step"]) == ("stopped", stop)
    train(recipe, tmp_path / "parts", *overrides, resume=True)
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for path in sorted((tmp_path / "whole" / "previews").iterdir()):
        assert path.read_bytes() == (tmp_path / "parts" / "previews" / path.name).read_bytes()


def test_a_stop_in_a_validation_repeats_it(recipe, tmp_path, monkeypatch):
    train(recipe, tmp_path / "whole")
    trainer = Trainer(load_config(recipe), tmp_path / "parts")
    with monkeypatch.context() as patch:
        real = trainer._validate
        patch.setattr(trainer, "_validate", lambda watch: (signal.raise_signal(signal.SIGINT), real(watch)))
        with pytest.raises(Interrupted):
            trainer.run()
    assert (trainer.state.step, trainer.state.validated) == (6, 0)
    train(recipe, tmp_path / "parts", resume=True)
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.77.0.2]:41267"
LOST = r"^another process ended or did not answer within train\.timeout = 9 seconds, "


def test_a_rank_that_is_lost_while_another_saves_after_a_signal_is_one_sentence(recipe, tmp_path, monkeypatch):
    """As when a preemption takes one machine away before the other."""
    trainer = Trainer(load_config(recipe, ["train.timeout=9"]), tmp_path / "run")

    def closed():
        raise RuntimeError(GLOO)

    def struck(batches, interrupt):
        monkeypatch.setattr(trainer.fabric, "barrier", closed)
        trainer.state.step += 1
        return True

    monkeypatch.setattr(trainer, "_step", struck)
    after = f"after step 1; resume from the last checkpoint with --resume ({GLOO})"
    with pytest.raises(UserError, match=LOST + re.escape(after) + "$"):
        trainer.run()


def test_a_rank_that_is_lost_as_the_processes_meet_is_one_sentence(recipe, tmp_path, monkeypatch):
    def closed(*_):
        raise RuntimeError(GLOO)

    monkeypatch.setattr("losspool.segmentation.training.trainer.host_group", closed)
    with pytest.raises(UserError, match=LOST + "before the first step"):
        Trainer(load_config(recipe, ["train.timeout=9"]), tmp_path / "run")


def test_lines_past_the_checkpoint_are_cut(recipe, tmp_path):
    """As after a kill: metrics of steps that no checkpoint holds, and a torn last line."""
    train(recipe, tmp_path / "whole")
    out = tmp_path / "parts"
    train(recipe, out)
    (out / "checkpoints" / "step-0000012.pt").unlink()
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"step": 13, "spl')
    description = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**description, "status": "running"}))
    train(recipe, out, resume=True)
    assert metrics(out) == metrics(tmp_path / "whole")
    assert_equal(checkpoint(out, 12), checkpoint(tmp_path / "whole", 12))


def test_a_kill_before_the_first_checkpoint_starts_again(recipe, tmp_path):
    """Lines of a run that left no checkpoint, the last one torn, are cut; the run is the undisturbed one."""
    train(recipe, tmp_path / "whole")
    out = tmp_path / "parts"
    train(recipe, out)
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    (out / "run.json").write_text(json.dumps({**json.loads((out / "run.json").read_text()), "status": "running"}))
    first = (out / "metrics.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["step"] == 4  # the first checkpoint is due at 5
    (out / "metrics.jsonl").write_text(first + '\n{"step": 5, "spl')
    train(recipe, out, resume=True)
    assert metrics(out) == metrics(tmp_path / "whole")


def test_another_number_of_processes_is_refused(recipe, tmp_path, monkeypatch):
    stopped_at(recipe, tmp_path / "run", 3, monkeypatch)
    content = read_checkpoint(tmp_path / "run" / "checkpoints" / "step-0000003.pt")
    write_checkpoint(tmp_path / "run" / "checkpoints", 3, {**content, "processes": 2})
    with pytest.raises(UserError, match="the run was started with 2 processes, got 1"):
        train(recipe, tmp_path / "run", resume=True)


def test_other_classes_are_refused(recipe, tmp_path, monkeypatch):
    """In another order, too: every label would mean another class to the network."""
    stopped_at(recipe, tmp_path / "run", 3, monkeypatch)
    write_classes(tmp_path / "data", {"classes": [CLASSES[0], CLASSES[2], CLASSES[1]], "ignore": VOID})
    with pytest.raises(UserError, match="its classes are soil, crop plant, weed, the network's are soil, weed, crop"):
        train(recipe, tmp_path / "run", resume=True)


def test_one_cell_is_too_little_for_batch_norm(recipe, tmp_path):
    overrides = [f"model.name={unet.BUILD}", "data.crop=[32,32]", "train.batch=1"]
    with pytest.raises(
        UserError, match="raised ValueError for crops of 1×3×32×32 in training mode: Expected more than 1 value"
    ):
        Trainer(load_config(recipe, overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_may_change_its_workers_but_not_its_rate(recipe, tmp_path, monkeypatch):
    stopped_at(recipe, tmp_path / "run", 3, monkeypatch)
    with pytest.raises(UserError, match=r"its train\.lr is 0\.02, the command says 0\.03"):
        train(recipe, tmp_path / "run", "train.lr=0.03", resume=True)
    assert train(recipe, tmp_path / "run", "data.workers=1", resume=True).state.step == 12


def test_a_failing_validation_loses_no_step(recipe, tmp_path):
    """All of val is void: the run ends with a sentence, and its steps are saved."""
    for path in (tmp_path / "data" / "labels" / "val").iterdir():
        save(path, np.full((40, 60), 255))
    with pytest.raises(UserError):
        train(recipe, tmp_path / "run")
    assert checkpoint(tmp_path / "run", 6)["validated"] == 0


def test_training_labels_without_any_class_are_refused(recipe, tmp_path):
    for path in (tmp_path / "data" / "labels" / "train").iterdir():
        save(path, np.full((40, 60), 255))
    with pytest.raises(UserError, match="no label image of the training data contains any class"):
        train(recipe, tmp_path / "run", "method=base")
    assert not (tmp_path / "run").exists()


def a_few_images(root, folder):
    """A dataset with every fortieth image of another one's."""
    for part in ("images/train", "images/val", "labels/train", "labels/val"):
        (folder / part).mkdir(parents=True)
        for path in sorted((root / part).iterdir())[::40]:
            (folder / part / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize("name", ["camvid", "streets"])
def test_the_small_recipes_train_two_steps(name, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "losspool.segmentation.data.kinds.streets.dataset.SCENE_COUNTS", {"train": 1000, "val": 4, "test": 1}
    )
    overrides = ["train.steps=2", f"data.cache={tmp_path / 'cache'}", "train.previews=1", "data.streets_train=20"]
    if name == "camvid":
        overrides += [f"data.root={a_few_images(shared_data('camvid'), tmp_path / 'camvid')}"]
        overrides += [f"model.weights={shared_data('weights', 'mobilenet_v2-b0353104.pth')}"]
    trainer = train(name, tmp_path / "run", *overrides)
    assert trainer.state.validated == 2


def test_the_same_seed_gives_the_same_run_and_another_does_not(recipe, tmp_path):
    for name, overrides in {"a": (), "b": (), "workers": ("data.workers=2",), "other": ("seed=1",)}.items():
        train(recipe, tmp_path / name, *overrides)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b") == metrics(tmp_path / "workers")
    assert metrics(tmp_path / "a") != metrics(tmp_path / "other")


def test_training_from_the_runs_own_config_gives_the_same_run(recipe, tmp_path):
    train(recipe, tmp_path / "a", "method=lmp", "sampling.mix=0.25", "loss.p=1.7")
    train(tmp_path / "a" / "config.yaml", tmp_path / "b")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


def test_resume_starts_where_there_is_nothing_and_rests_where_all_is_done(recipe, tmp_path, capsys):
    train(recipe, tmp_path / "run", resume=True)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    train(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def frozen(*more):
    """Neither BatchNorm nor dropout sees the micro-batch then."""
    return ("model.name=deeplabv2_resnet18", "model.batch_norm=frozen", "data.crop=[33,33]", "train.lr=0.001", *more)


def test_accumulation_steps_like_one_large_batch(recipe, tmp_path):
    train(recipe, tmp_path / "one", *frozen("train.batch=4", "train.steps=4"))
    train(recipe, tmp_path / "two", *frozen("train.batch=2", "train.accumulate=2", "train.steps=4"))
    one, two = (checkpoint(tmp_path / name, 4)["model"] for name in ("one", "two"))
    for key in one:
        torch.testing.assert_close(one[key], two[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])  # all that the CPU has
@pytest.mark.parametrize("method", METHODS)
def test_one_step_of_every_method_and_precision(recipe, tmp_path, method, precision):
    trainer = train(recipe, tmp_path / "run", f"method={method}", f"train.precision={precision}", "train.steps=1")
    assert trainer.config.loss.name in LOSSES
    (line, validation) = metrics(tmp_path / "run")
    assert line["loss"] > 0
    per_pixel = LOSSES[trainer.config.loss.name].region_loss is None  # Dice gives no weight to a cross-entropy
    assert sum(line["mass"]) == pytest.approx(1 if per_pixel else 0)
    assert 0 <= validation["miou"] <= 1
    fresh = Trainer(trainer.config, tmp_path / "fresh").model.module
    changed = [
        not torch.equal(a, b) for a, b in zip(trainer.model.module.parameters(), fresh.parameters(), strict=True)
    ]
    assert all(changed)


def test_half_precision_on_the_cpu_is_refused_by_name(recipe, tmp_path):
    with pytest.raises(UserError, match=r"train\.precision=16-mixed needs an accelerator"):
        train(recipe, tmp_path / "run", "train.precision=16-mixed")


@pytest.mark.parametrize("option", ["train.compile=true", "train.channels_last=true"])
def test_compiled_and_channels_last_train_alike(recipe, tmp_path, monkeypatch, option):
    """The same up to rounding, under the same keys. The graph is tested, not the code that torch makes of it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for name, more in (("plain", ()), ("other", (option,))):
        train(recipe, tmp_path / name, "model.name=tiny_model.build_plain", "train.steps=3", *more)
    plain, other = (checkpoint(tmp_path / name, 3)["model"] for name in ("plain", "other"))
    assert list(plain) == list(other)
    for key in plain:
        torch.testing.assert_close(plain[key], other[key], rtol=1e-3, atol=1e-5)


def test_overfits_two_streets(tmp_path):
    """The whole chain learns: generated scenes, sampler, loss, optimiser, validation."""
    content = {
        "data": {
            "name": "streets",
            "val": "train",
            "streets_size": [32, 32],
            "streets_train": 2,
            "crop": [32, 32],
            "scale": [1, 1],
            "flip": False,
            "workers": 0,
            "cache": str(tmp_path / "cache"),
        },
        "model": {"name": "tiny_model.build_memoriser"},
        "train": {"steps": 150, "batch": 2, "lr": 0.01, "optimizer": "adamw", "weight_decay": 0},
    }
    content["train"] |= {"validate_every": 150, "previews": 0}
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(content))
    trainer = train(path, tmp_path / "run", "method=lmp_loss_only")
    assert trainer.state.best["miou"] > 0.95


def test_a_loss_that_is_not_finite_stops_the_run_with_step_and_images(recipe, tmp_path):
    with pytest.raises(UserError) as caught:
        train(recipe, tmp_path / "run", "train.lr=1e30", "train.batch=3")
    text = str(caught.value)
    assert "the loss is not finite at step 2, on the images 00" in text
    assert text.count("00") >= 3
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


def test_checkpoints_that_stay(recipe, tmp_path):
    """The last two, the best, and the steps that were named; nothing else."""
    trainer = train(recipe, tmp_path / "run", "train.checkpoint_every=2", "train.keep_last=2", "train.keep_steps=[3,4]")
    found = {int(path.stem.split("-")[1]) for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert found == {3, 4, 10, 12, trainer.state.best["step"]}


def test_the_learning_rate_is_poly_and_ten_times_as_high_for_the_head(recipe, tmp_path):
    trainer = train(recipe, tmp_path / "run", *frozen("train.steps=5", "train.log_every=1"))
    rates = [line["lr"] for line in metrics(tmp_path / "run") if line["split"] == "train"]
    assert rates == pytest.approx([0.001 * (1 - step / 5) ** 0.9 for step in range(5)])
    backbone, head = trainer.optimizer.param_groups
    assert head["lr"] == pytest.approx(10 * backbone["lr"])
    assert {group["weight_decay"] for group in (backbone, head)} == {5e-4}
    assert {group["momentum"] for group in (backbone, head)} == {0.9}


def test_the_warm_up(recipe, tmp_path):
    train(recipe, tmp_path / "run", "train.steps=5", "train.log_every=1", "train.warmup=4")
    rates = [line["lr"] for line in metrics(tmp_path / "run") if line["split"] == "train"]
    assert rates == pytest.approx([0.02 * min((step + 1) / 4, 1) * (1 - step / 5) ** 0.9 for step in range(5)])


def test_metrics_are_those_of_the_run(recipe, tmp_path):
    """The lines hold what their names say, against the trainer's own state."""
    trainer = train(recipe, tmp_path / "run", "method=lmp")
    lines = metrics(tmp_path / "run")
    assert [(line["step"], line["split"]) for line in lines] == [
        (4, "train"),
        (6, "val"),
        (8, "train"),
        (12, "train"),
        (12, "val"),
    ]
    last = lines[3]
    assert last["iou"] == trainer.sampler.running.after(12).tolist()
    assert last["probabilities"] == trainer.sampler.probabilities(trainer.sampler.running.after(12)).tolist()
    assert last["miou"] == pytest.approx(sum(last["iou"]) / 3)
    assert 0 < last["saturated"] < 1
    assert last["alpha"] > 0


def test_diagnostics_tell_the_losses_apart(recipe, tmp_path):
    """The plain mean's mass is the share of pixels; loss max-pooling's is not. The class weights' is balanced."""
    mass = {}
    for method in ("base", "lmp_loss_only", "inverse_frequency"):
        train(recipe, tmp_path / method, f"method={method}", "train.steps=4")
        mass[method] = metrics(tmp_path / method)[0]["mass"]
    assert mass["base"][0] > 0.7
    assert mass["lmp_loss_only"][0] < mass["base"][0]
    assert mass["inverse_frequency"][1] > 2 * mass["base"][1]


WRONG_MODELS = {
    "not_a_network": r"must return a torch\.nn\.Module, got int",
    "build_wrong_output": r"the model must return logits \(B, 3, h, w\).*, got dict",
    "build_raising": "the model raised RuntimeError for crops of 1×3×24×24: no forward",
    "build_empty": "the model has no trainable parameter",
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_a_model_that_is_wrong_is_named_before_anything_is_written(recipe, tmp_path, name):
    with pytest.raises(UserError, match=WRONG_MODELS[name]):
        train(recipe, tmp_path / "run", f"model.name=tiny_model.{name}")
    assert not (tmp_path / "run").exists()


def test_too_many_workers_are_refused_before_anything_is_written(recipe, tmp_path):
    with pytest.raises(UserError, match=r"sampling\.lag = 9 must exceed data\.workers × 2 = 20"):
        train(recipe, tmp_path / "run", "data.workers=10")
    assert not (tmp_path / "run").exists()
