"""Lightning's monitor: what it logs is what the call found, to every logger, and training does not change."""

import lightning
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import losspool
from losspool.integrations.lightning import PoolingMonitor


class Net(lightning.LightningModule):
    def __init__(self, criterion):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.criterion, self.losses = nn.Conv2d(3, 3, 1), criterion, []

    def training_step(self, batch, index):
        loss = self.criterion(self.conv(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.criterion(self.conv(batch[0]) * 100, batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def batches():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (8, 6, 6), generator=g)
    labels[:, 0] = 255
    return DataLoader(TensorDataset(torch.randn(8, 3, 6, 6, generator=g), labels), batch_size=2)


def fit(net, *callbacks, logger=False, **options):
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=4, logger=logger, callbacks=list(callbacks), **quiet, **options
    )
    trainer.fit(net, batches(), batches())
    return net.losses


class Kept(CSVLogger):
    """Also keeps what it is given. A CSV file takes no pictures."""

    def __init__(self, folder):
        super().__init__(folder)
        self.lines = {}

    def log_metrics(self, metrics, step=None):
        self.lines.setdefault(step, {}).update(metrics)


def test_the_monitor_logs_what_the_call_found(tmp_path):
    criterion = losspool.CrossEntropyLoss(ignore_index=255, trim=0.05)
    kept, board = Kept(tmp_path), TensorBoardLogger(tmp_path)
    net = Net(criterion)
    untrained = Net(criterion)
    losses = fit(net, PoolingMonitor(every=2, maps=1), logger=[kept, board])
    assert losses == fit(Net(criterion))  # it only watches
    assert sorted(step for step, line in kept.lines.items() if "pooling/alpha" in line) == [0, 2]

    images, labels = next(iter(batches()))
    stats = losspool.PoolingStats()
    criterion(untrained.conv(images), labels, stats=stats)
    mass = torch.stack([stats.weights[labels == each].sum() for each in range(3)])
    pixels = torch.stack([(labels == each).sum() for each in range(3)])
    expected = {f"pooling/mass/{index}": share for index, share in enumerate((mass / mass.sum()).tolist())}
    expected |= {f"pooling/pixels/{index}": share for index, share in enumerate((pixels / pixels.sum()).tolist())}
    expected |= {"pooling/alpha": stats.alpha.mean().item()}
    expected |= {"pooling/saturated": (stats.saturated.sum() / stats.valid.sum()).item()}
    assert {name: kept.lines[0][name] for name in expected} == pytest.approx(expected, rel=1e-5)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(board.log_dir).Reload()
    assert [each.step for each in events.Images("pooling/weights/0")] == [0, 2]
    assert len(events.Tags()["images"]) == 1


def test_while_gradients_accumulate_a_step_is_recorded_once(tmp_path):
    kept = Kept(tmp_path)
    fit(
        Net(losspool.CrossEntropyLoss(ignore_index=255)),
        PoolingMonitor(every=1),
        logger=kept,
        accumulate_grad_batches=2,
    )
    assert sorted(step for step, line in kept.lines.items() if "pooling/alpha" in line) == [0, 1, 2, 3]


def test_the_hooks_are_gone_however_training_ends():
    net = Net(losspool.CrossEntropyLoss(ignore_index=255))
    fit(net, PoolingMonitor())
    assert not net.criterion._forward_pre_hooks
    with pytest.raises(ValueError, match="2 names in classes=, but the logits have 3 classes"):
        fit(net, PoolingMonitor(classes=["road", "car"]))
    assert not net.criterion._forward_pre_hooks


def test_a_monitor_without_a_module_to_watch():
    with pytest.raises(ValueError, match=r"no module of losspool in Net; pass criterion="):
        fit(Net(nn.CrossEntropyLoss(ignore_index=255)), PoolingMonitor())


def test_the_monitor_writes_to_wandb_and_mlflow(local_trackers):
    import mlflow
    import wandb
    from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

    loggers = [WandbLogger(save_dir=local_trackers, offline=True), MLFlowLogger(tracking_uri=mlflow.get_tracking_uri())]
    fit(Net(losspool.CrossEntropyLoss(ignore_index=255)), PoolingMonitor(maps=1), logger=loggers)
    assert wandb.run.summary["pooling/alpha"] > 0
    wandb.finish()
    assert loggers[1].experiment.get_run(loggers[1].run_id).data.metrics["pooling/alpha"] > 0
    pictures = [path for path in local_trackers.rglob("*.png") if "weights" in str(path)]
    for path in pictures:
        with Image.open(path) as image:
            assert image.size == (6, 6)
    assert {path.relative_to(local_trackers).parts[0] for path in pictures} == {"wandb", "mlruns"}
