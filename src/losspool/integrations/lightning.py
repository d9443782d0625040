"""Lightning: a callback that shows what the loss does. The loss itself needs no adapter there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from losspool.integrations.recording import Recorder, find_criterion, write_maps

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:  # the same package by its older name
    from pytorch_lightning import Callback


class PoolingMonitor(Callback):
    """Logs α, the saturated share, the weight mass of each class and a few weight maps.

    Scalars go to every logger of the trainer, maps to those that take pictures (TensorBoard, W&B, MLflow). They
    describe the first call of the criterion in a step, on the first process.

    Args:
        criterion: the module of losspool to watch (default: the first one in the LightningModule).
        every: steps of the optimiser between two records.
        classes: names of the classes (default: their numbers).
        maps: number of weight maps, images of the batch from the first on.
    """

    def __init__(
        self,
        criterion: nn.Module | None = None,
        *,
        every: int = 50,
        classes: Sequence[str] | None = None,
        maps: int = 2,
    ) -> None:
        self._criterion = criterion
        self._recorder = Recorder(every, classes, maps)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        modules = pl_module.modules() if self._criterion is None else [self._criterion]
        self._recorder.attach(find_criterion(modules, type(pl_module).__name__))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._recorder.begin(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        record = self._recorder.end()
        if record is None or not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.log_metrics(record.scalars, step=record.step)
            write_maps(logger.experiment, record.maps, record.step, getattr(logger, "run_id", None))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._recorder.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._recorder.detach()
