"""The mixin for ``Trainer``: right under accumulation, on coarse logits and in evaluation; and its monitor."""

import runpy
import sys

import pytest
import torch
import transformers
from PIL import Image
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import SemanticSegmenterOutput

import losspool
from losspool.integrations.huggingface import LossMaxPoolingMixin, PoolingMonitor


class Pooled(LossMaxPoolingMixin, Trainer):
    pass


class Coarse(nn.Module):
    """Like SegFormer: logits at half the resolution, and any keyword. Without labels there is no loss of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 2, stride=2)

    def forward(self, pixel_values, labels=None, **kwargs):
        assert labels is None
        return SemanticSegmenterOutput(logits=self.conv(pixel_values))


def data():
    g = torch.Generator().manual_seed(0)
    return [
        {"pixel_values": torch.randn(3, 8, 8, generator=g), "labels": torch.randint(0, 4, (8, 8), generator=g)}
        for _ in range(8)
    ]


def trainer(tmp_path, trainer_class=Pooled, model=None, options=None, **kwargs):
    options = {"report_to": "none", "logging_steps": 1, "max_steps": 2, "seed": 0, **(options or {})}
    args = TrainingArguments(
        str(tmp_path), disable_tqdm=True, use_cpu=True, learning_rate=0.1, optim="sgd", save_strategy="no", **options
    )
    return trainer_class(model=model or Coarse(), args=args, train_dataset=data(), eval_dataset=data()[:2], **kwargs)


def trained(made):
    made.train()
    logged = [(entry["loss"], entry["grad_norm"]) for entry in made.state.log_history if "loss" in entry]
    return [number for pair in logged for number in pair]


def split(size, steps):
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}


def test_accumulated_micro_batches_are_one_batch(tmp_path):
    whole = trained(trainer(tmp_path, options=split(4, 1)))
    assert len(whole) == 4
    assert trained(trainer(tmp_path, options=split(2, 2))) == pytest.approx(whole, rel=1e-4)
    assert trained(trainer(tmp_path, options=split(1, 4))) == pytest.approx(whole, rel=1e-4)


def test_compute_loss_func_is_the_trap_that_the_page_names(tmp_path):
    criterion = losspool.UpsampledCrossEntropyLoss()
    call = {"compute_loss_func": lambda outputs, labels, num_items_in_batch: criterion(outputs.logits, labels)}
    whole = trained(trainer(tmp_path, Trainer, options=split(4, 1), **call))
    doubled = trained(trainer(tmp_path, Trainer, options=split(2, 2), **call))
    assert doubled[:2] == pytest.approx([2 * each for each in whole[:2]], rel=1e-4)
    with pytest.raises(ValueError, match="compute_loss_func is not used here; pass criterion="):
        trainer(tmp_path, **call)


class Configured(Coarse):
    config = transformers.PretrainedConfig()


def test_what_would_be_ignored_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"label_smoothing_factor=0\.1 is not used here; set it in the criterion"):
        trainer(tmp_path, model=Configured(), options={"label_smoothing_factor": 0.1})
    here = sys.modules["transformers"]  # which replaced the module that was imported above
    monkeypatch.setattr(here, "__version__", "4.47.1")
    with pytest.raises(ImportError, match=r"needs transformers 4\.48 or newer, got 4\.47\.1"):
        runpy.run_module("losspool.integrations.huggingface")


def test_evaluation_has_the_loss_and_the_logits(tmp_path):
    made = trainer(tmp_path, compute_metrics=lambda found: {"shape": found.predictions.shape[1:]})
    measured = made.evaluate()
    samples = data()[:2]
    logits = made.model.conv(torch.stack([each["pixel_values"] for each in samples]))
    expected = losspool.upsampled_cross_entropy(logits, torch.stack([each["labels"] for each in samples]))
    assert measured["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert measured["eval_shape"] == (4, 4, 4)


class Tuples(Coarse):
    def forward(self, pixel_values, labels=None):
        return (super().forward(pixel_values).logits, pixel_values)


def test_a_model_that_returns_tuples(tmp_path):
    made = trainer(tmp_path, model=Tuples(), compute_metrics=lambda found: {"shape": found.predictions[0].shape[1:]})
    assert made.evaluate()["eval_shape"] == (4, 4, 4)


class Masks(Coarse):
    def forward(self, pixel_values, labels=None):
        return {"masks": pixel_values}


def test_the_mixin_comes_before_the_trainer():
    with pytest.raises(TypeError, match="class Late: name LossMaxPoolingMixin before Trainer"):

        class Late(Trainer, LossMaxPoolingMixin):
            pass


def test_what_cannot_be_pooled_is_named(tmp_path):
    with pytest.raises(ValueError, match="dict has no logits for the criterion, only masks"):
        trainer(tmp_path, model=Masks()).train()
    made = trainer(tmp_path)
    with pytest.raises(ValueError, match="needs labels for the loss, got only pixel_values"):
        made.compute_loss(made.model, {"pixel_values": torch.zeros(1, 3, 8, 8)})


def test_the_monitor_reports_through_the_trainer(tmp_path):
    options = {**split(2, 2), "report_to": "tensorboard", "max_steps": 3}
    made = trainer(tmp_path, options=options)
    plain = trained(trainer(tmp_path, options=options))
    made.add_callback(PoolingMonitor(made, every=2, classes=["road", "car", "sky", "pole"], maps=1))
    assert trained(made) == plain  # it only watches
    found = [entry for entry in made.state.log_history if "pooling/alpha" in entry]
    assert [entry["step"] for entry in found] == [1, 3]
    assert sum(found[0][f"pooling/mass/{name}"] for name in ("road", "car", "sky", "pole")) == pytest.approx(1)
    assert not made.criterion._forward_hooks
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = [EventAccumulator(str(path)).Reload() for path in tmp_path.rglob("events.out.tfevents.*")]
    (file,) = [each for each in files if "pooling/weights/0" in each.Tags()["images"]]
    for events in (file.Images("pooling/weights/0"), file.Scalars("train/pooling/mass/car")):
        assert [event.step for event in events] == [1, 3]


class Failing(Coarse):
    """Fails at its second batch."""

    calls, left = 0, 1

    def forward(self, pixel_values, labels=None):
        self.calls += 1
        if self.calls > self.left:
            raise RuntimeError("out of luck")
        return super().forward(pixel_values)


def test_a_training_that_fails_leaves_no_hooks(tmp_path):
    model = Failing()
    made = trainer(tmp_path, model=model, options={**split(2, 1), "max_steps": 3})
    made.add_callback(PoolingMonitor(made, every=1))
    with pytest.raises(RuntimeError, match="out of luck"):
        made.train()
    assert not made.criterion._forward_pre_hooks
    assert not made.criterion._forward_hooks
    model.left = 99
    made.train()
    found = [entry["step"] for entry in made.state.log_history if "pooling/alpha" in entry]
    assert found == [1, 2, 3]
    assert not made.criterion._forward_hooks


def test_labels_that_are_refused_leave_no_hooks(tmp_path):
    made = trainer(tmp_path, criterion=losspool.CrossEntropyLoss())  # the labels are larger than the logits
    made.add_callback(PoolingMonitor(made, every=1))
    with pytest.raises(ValueError, match="for coarse logits use"):
        made.train()
    assert not made.criterion._forward_pre_hooks
    assert not made.criterion._forward_hooks


def test_a_monitor_without_a_module_to_watch(tmp_path):
    made = trainer(tmp_path, criterion=lambda logits, labels: losspool.upsampled_cross_entropy(logits, labels))
    made.add_callback(PoolingMonitor(made))
    with pytest.raises(ValueError, match=r"no module of losspool in function; pass criterion="):
        made.train()


def test_the_monitor_writes_to_wandb_and_mlflow(local_trackers):
    import mlflow
    import wandb

    made = trainer(local_trackers / "out", options={**split(2, 1), "report_to": ["wandb", "mlflow"]})
    made.add_callback(PoolingMonitor(made, maps=1))
    made.train()
    assert wandb.run.summary["train/pooling/alpha"] > 0
    wandb.finish()
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.metrics["pooling/alpha"] > 0
    pictures = [path for path in local_trackers.rglob("*.png") if "weights" in str(path)]
    for path in pictures:
        with Image.open(path) as image:
            assert image.size == (8, 8)
    assert {path.relative_to(local_trackers).parts[0] for path in pictures} == {"wandb", "mlruns"}
