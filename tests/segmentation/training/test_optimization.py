"""Laws of the optimisation: each update against its definition, and averaged weights that are what is scored."""

import math
from contextlib import closing

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.plugins.environments import LightningEnvironment
from torch import nn

from losspool.segmentation.config import TrainConfig, load_config
from losspool.segmentation.prediction import TrainedRun
from losspool.segmentation.prediction.evaluation import evaluate_run
from losspool.segmentation.training import Trainer
from losspool.segmentation.training.loader import training_batches
from losspool.segmentation.training.optimization import AveragedWeights, clip_gradients, set_rates
from losspool.segmentation.training.step_stats import StepStats
from losspool.segmentation.training.validation import Validation
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe

MODERN = ("train.optimizer=adamw", "train.lr=0.01", "train.schedule=cosine", "train.clip=0.5", "train.ema=0.9")
EVERY_STEP = ("train.log_every=1", "train.checkpoint_every=1", "train.keep_last=100")


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


def gradients(trainer, steps):
    """The gradients of the trainer's network on its own crops, by plain autograd; the caller updates the weights."""
    module, config = trainer.model.module, trainer.config
    with closing(training_batches(config, trainer.fabric, trainer.data, trainer.sampler, 0)) as batches:
        for step in range(steps):
            torch.manual_seed((config.seed << 32) + (step << 12))
            batch = next(batches)
            logits = module(trainer.model.spec.preprocessing.apply(batch.images))
            loss = trainer.criterion(logits, batch.labels, [draw.seed for draw in batch.draws]).loss
            yield torch.autograd.grad(loss, list(module.parameters()))


def test_the_default_is_sgd_with_momentum_and_poly_to_the_bit(recipe, tmp_path):
    """Five steps by hand, in the order of torch's own operations. The norms in the metrics are those gradients'."""
    options = ("method=base", "train.steps=5", "train.warmup=2", "train.log_every=1")
    train(recipe, tmp_path / "run", *options)
    untrained = Trainer(load_config(recipe, options), tmp_path / "other")
    parameters, momenta, norms = list(untrained.model.module.parameters()), [], []
    for step, found in enumerate(gradients(untrained, 5)):
        norms.append(math.sqrt(sum(float(each.double().square().sum()) for each in found)))
        rate = 0.02 * (min((step + 1) / 2, 1.0) * (1 - step / 5) ** 0.9)
        decayed = [each.add(weight.detach(), alpha=5e-4) for each, weight in zip(found, parameters, strict=True)]
        momenta = [old.mul(0.9).add(new) for old, new in zip(momenta, decayed, strict=True)] if momenta else decayed
        with torch.no_grad():
            for weight, momentum in zip(parameters, momenta, strict=True):
                weight.add_(momentum, alpha=-rate)
    assert_equal(dict(untrained.model.module.state_dict()), dict(checkpoint(tmp_path / "run", 5)["model"]))
    lines = [line for line in metrics(tmp_path / "run") if line["split"] == "train"]
    assert [line["grad_norm"] for line in lines] == pytest.approx(norms, rel=1e-5)


def test_a_line_has_the_mean_and_the_largest_norm_of_its_steps(recipe, tmp_path):
    for name, every in (("steps", 1), ("lines", 4)):
        train(recipe, tmp_path / name, f"train.log_every={every}", "train.accumulate=2")
    steps, lines = (
        [line for line in metrics(tmp_path / name) if line["split"] == "train"] for name in ("steps", "lines")
    )
    for number, line in enumerate(lines):
        norms = [each["grad_norm"] for each in steps[4 * number : 4 * number + 4]]
        assert line["grad_norm"] == pytest.approx(sum(norms) / 4)
        assert line["grad_norm_max"] == max(norms)


def test_a_norm_that_is_not_finite_is_left_out():
    window = StepStats.zeros(2)
    for norm in (3.0, math.inf, math.nan, 5.0):
        window += StepStats.zeros(2).with_norm(torch.tensor(norm))
    assert (window.summary()["grad_norm"], window.summary()["grad_norm_max"]) == (4.0, 5.0)
    assert StepStats.zeros(2).with_norm(torch.tensor(math.nan)).summary()["grad_norm"] is None


def test_a_clipped_step_is_as_long_as_its_limit(recipe, tmp_path):
    """Without momentum and decay the step is the rate times the gradient. An idle limit changes no bit."""
    plain = ("train.momentum=0", "train.weight_decay=0", "train.steps=1")
    for name, limit in (("off", 0), ("high", 100), ("low", 0.1)):
        train(recipe, tmp_path / name, *plain, f"train.clip={limit}")
    fresh = Trainer(load_config(recipe, plain), tmp_path / "fresh").model.module.state_dict()
    names = [name for name in fresh if not name.startswith("1.") or name in ("1.weight", "1.bias")]  # no statistics
    off, high, low = (checkpoint(tmp_path / name, 1)["model"] for name in ("off", "high", "low"))
    moves = [torch.cat([(after[name] - fresh[name]).flatten() for name in names]) for after in (off, low)]
    norm = metrics(tmp_path / "low")[0]["grad_norm"]
    assert norm > 0.5  # the norm before clipping
    torch.testing.assert_close(moves[0] * 0.1 / norm, moves[1], rtol=1e-3, atol=1e-7)
    assert_equal(off, high)


def test_the_norm_in_half_precision_is_that_of_the_gradient_without_its_scale():
    half = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    fabric = Fabric(accelerator="cpu", plugins=[half, LightningEnvironment()])
    layer = nn.Linear(1, 1)
    network, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=1.0))
    fabric.backward(3 * layer.weight.sum() + 4 * layer.bias.sum())
    assert layer.weight.grad.item() == 3 * 65536
    norm = clip_gradients(fabric, network, optimizer, TrainConfig(clip=1.0))
    assert float(norm) == pytest.approx(5)
    before = layer.weight.item()
    optimizer.step()
    assert before - layer.weight.item() == pytest.approx(0.6, rel=1e-3)


def test_adamw_decays_neither_biases_nor_norms(recipe, tmp_path):
    options = ("model.name=deeplabv2_resnet18", "model.frozen_bn=false", "data.crop=[33,33]", "train.weight_decay=0.05")
    trainer = Trainer(load_config(recipe, (*options, *MODERN)), tmp_path / "run")
    groups = trainer.optimizer.param_groups
    assert [group["name"] for group in groups] == ["backbone", "backbone", "head", "head"]
    assert [group["weight_decay"] for group in groups] == [0.05, 0.0, 0.05, 0.0]
    assert [{each.ndim for each in group["params"]} for group in groups] == [{4}, {1}, {4}, {1}]
    found = sorted(id(each) for group in groups for each in group["params"])
    assert found == sorted(map(id, trainer.model.module.parameters()))


def test_a_step_of_adamw_against_its_definition(recipe, tmp_path):
    """The first step: m/(√v + ε) is the sign of the gradient, after a decay of lr · weight_decay."""
    options = ("method=base", "train.optimizer=adamw", "train.lr=0.01", "train.weight_decay=0.5", "train.steps=1")
    train(recipe, tmp_path / "run", *options)
    untrained = Trainer(load_config(recipe, options), tmp_path / "other")
    (found,) = gradients(untrained, 1)
    after = checkpoint(tmp_path / "run", 1)["model"]
    for (name, weight), gradient in zip(untrained.model.module.named_parameters(), found, strict=True):
        decayed = weight.detach() * (1 - 0.01 * 0.5 * (weight.ndim > 1))
        torch.testing.assert_close(after[name], decayed - 0.01 * gradient / (gradient.abs() + 1e-8))


ROOT_HALF = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("step", "warmup", "factor"),
    [(0, 0, 1), (0, 4, 0.25), (3, 0, (1 + ROOT_HALF) / 2), (6, 0, 0.5), (6, 14, 0.25), (9, 2, (1 - ROOT_HALF) / 2)],
)
def test_the_cosine_of_twelve_steps(step, warmup, factor):
    config = TrainConfig(steps=12, lr=2.0, head_factor=3, schedule="cosine", warmup=warmup)
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "name": name} for name in ("all", "head")])
    set_rates(optimizer, config, step)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([2 * factor, 6 * factor])


class KilledError(BaseException):
    """Leaves the trainer no time to save, like SIGKILL."""


@pytest.mark.parametrize("step", [5, 8])
def test_a_kill_and_a_resume_change_nothing(recipe, tmp_path, monkeypatch, step):
    """With every part of the state: AdamW's moments, averaged weights, the norms of a line that is not written yet."""
    options = (*MODERN, "train.checkpoint_every=2", "data.photometric=1", "data.rotate=30")
    train(recipe, tmp_path / "whole", *options)

    def kill():
        raise KilledError

    with monkeypatch.context() as patch:
        at_step(patch, step, kill)
        with pytest.raises(KilledError):
            train(recipe, tmp_path / "parts", *options)
    train(recipe, tmp_path / "parts", *options, resume=True)
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for path in sorted((tmp_path / "whole" / "previews").iterdir()):
        assert path.read_bytes() == (tmp_path / "parts" / "previews" / path.name).read_bytes()


def test_averaged_weights_against_their_definition(recipe, tmp_path):
    """From the weights of every step. Averaging changes nothing in training."""
    train(recipe, tmp_path / "run", "train.ema=0.5", *EVERY_STEP)
    train(recipe, tmp_path / "plain")
    assert_equal(checkpoint(tmp_path / "run", 12)["model"], checkpoint(tmp_path / "plain", 12)["model"])
    first = Trainer(load_config(recipe), tmp_path / "fresh").model.module.state_dict()
    expected = {name: value.double() for name, value in first.items() if value.is_floating_point()}
    for step in range(1, 13):
        decay = min(0.5, (1 + step) / (10 + step))
        stored = checkpoint(tmp_path / "run", step)
        for name in expected:
            expected[name] = decay * expected[name] + (1 - decay) * stored["model"][name].double()
            torch.testing.assert_close(stored["averaged"][name].double(), expected[name], rtol=1e-4, atol=1e-6)
    assert set(stored["model"]) - set(stored["averaged"]) == {"1.num_batches_tracked"}
    assert checkpoint(tmp_path / "plain", 12)["averaged"] == {}


def test_averaged_weights_are_what_is_validated_and_loaded(recipe, tmp_path, monkeypatch):
    """Training goes on with the network's own. ``losspool evaluate`` scores what the validation scored."""
    seen, real = {}, Validation.__call__

    def noted(self, step, watch):
        seen[step] = {name: value.clone() for name, value in self.model.module.state_dict().items()}
        return real(self, step, watch)

    monkeypatch.setattr(Validation, "__call__", noted)
    trainer = train(recipe, tmp_path / "run", "train.ema=0.99", "train.checkpoint_every=6")
    run, stored = TrainedRun.open(tmp_path / "run", ["tiny_model.build"]), checkpoint(tmp_path / "run", 12)
    assert not torch.equal(stored["model"]["0.weight"], stored["averaged"]["0.weight"])
    assert_equal(seen[12], {**stored["model"], **stored["averaged"]})
    assert_equal(dict(run.load(12).model.module.state_dict()), seen[12])
    assert_equal(dict(trainer.model.module.state_dict()), dict(stored["model"]))
    (validated,) = (line for line in metrics(tmp_path / "run") if (line["step"], line["split"]) == (12, "val"))
    assert validated["iou"] == evaluate_run(run, [12], "val", run.config.evaluate).to_dict()["checkpoints"][0]["iou"]


def test_the_networks_own_weights_come_back_after_an_error():
    layer = nn.BatchNorm2d(2)
    averaged = AveragedWeights(layer, 0.9)
    nn.init.constant_(layer.weight, 7.0)
    with pytest.raises(ZeroDivisionError), averaged.in_network():
        1 / (layer.weight.sum().item() - 2)  # the averaged weights are 1
    assert layer.weight.tolist() == [7.0, 7.0]
