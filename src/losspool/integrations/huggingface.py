"""Hugging Face transformers, 4.48 or newer: a mixin for ``Trainer``, and a callback that shows what the loss does."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from transformers import TrainerCallback, __version__

from losspool import UpsampledCrossEntropyLoss
from losspool.integrations.recording import Recorder, find_criterion, write_maps

if tuple(map(int, __version__.split(".")[:2])) < (4, 48):
    raise ImportError(
        f"losspool.integrations.huggingface needs transformers 4.48 or newer, got {__version__}: "
        f"its Trainer does not divide by the accumulation steps"
    )


class LossMaxPoolingMixin:
    """Trains with a loss of losspool: ``class PooledTrainer(LossMaxPoolingMixin, Trainer)``.

    The model must return logits. The loss of a step is the mean over its micro-batches. (With ``compute_loss_func``,
    ``Trainer`` leaves the division by their number to that function.)

    Args:
        criterion: from logits and labels to a loss (default: ``losspool.UpsampledCrossEntropyLoss`` with the
            ``semantic_loss_ignore_index`` of the model, which enlarges coarse logits to the size of the labels).
        all others: see ``transformers.Trainer``.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if any("compute_loss" in vars(base) for base in cls.__mro__[1 : cls.__mro__.index(LossMaxPoolingMixin)]):
            raise TypeError(f"class {cls.__name__}: name LossMaxPoolingMixin before Trainer, whose loss it replaces")

    # Newer versions of Trainer ask for this. In older ones, model_accepts_loss_kwargs below has the same effect.
    loss_is_scaled_for_ga = False

    def __init__(self, *args: Any, criterion: Callable[[Tensor, Tensor], Tensor] | None = None, **kwargs: Any) -> None:
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func is not used here; pass criterion=, a function of logits and labels")
        super().__init__(*args, **kwargs)
        if smoothing := self.args.label_smoothing_factor:  # type: ignore[attr-defined]
            raise ValueError(f"label_smoothing_factor={smoothing} is not used here; set it in the criterion")
        self.model_accepts_loss_kwargs = False  # its own loss is not used
        config = getattr(self.model, "config", None)  # type: ignore[attr-defined]
        void = getattr(config, "semantic_loss_ignore_index", -100)
        self.criterion = criterion or UpsampledCrossEntropyLoss(ignore_index=void)

    def compute_loss(self, model: nn.Module, inputs: Mapping[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        """``Trainer`` also passes ``num_items_in_batch``: the mean over images needs no count of labels."""
        inputs = dict(inputs)
        if "labels" not in inputs:
            raise ValueError(
                f"a batch needs labels for the loss, got only {', '.join(inputs)}; if the dataset has them, set "
                f"remove_unused_columns=False (Trainer drops what the model's forward does not name)"
            )
        labels = inputs.pop("labels")  # or the model would compute its own loss too
        outputs = model(**inputs)
        if isinstance(outputs, Mapping) and "logits" not in outputs:
            raise ValueError(f"{type(outputs).__name__} has no logits for the criterion, only {', '.join(outputs)}")
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        if isinstance(self.criterion, nn.Module):
            self.criterion.to(logits.device)  # its class weights
        loss = self.criterion(logits, labels)
        # Trainer drops the first entry of a tuple, where the model's own loss would be.
        return (loss, outputs if isinstance(outputs, Mapping) else (loss, *outputs)) if return_outputs else loss


class PoolingMonitor(TrainerCallback):
    """Logs α, the saturated share, the weight mass of each class and a few weight maps.

    Scalars go through ``trainer.log`` to whatever it reports to, maps to TensorBoard, W&B and MLflow. They describe the
    first micro-batch of a step. Add it with ``trainer.add_callback(PoolingMonitor(trainer))``.

    Args:
        trainer: the trainer, which does not pass itself to callbacks.
        criterion: the module of losspool to watch (default: the trainer's criterion, or the first one in its model).
        every: steps of the optimiser between two records.
        classes: names of the classes (default: their numbers).
        maps: number of weight maps, images of the batch from the first on.
    """

    def __init__(
        self,
        trainer: Any,
        criterion: nn.Module | None = None,
        *,
        every: int = 50,
        classes: Sequence[str] | None = None,
        maps: int = 2,
    ) -> None:
        self._trainer, self._criterion = trainer, criterion
        self._recorder = Recorder(every, classes, maps)
        # Trainer has no event for a training that fails, and the hooks must not outlive it.
        trainer.train = _followed_by(self._recorder.detach, trainer.train)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        given = self._criterion or getattr(self._trainer, "criterion", None)
        modules = [given] if given is not None else self._trainer.model.modules()
        self._recorder.attach(find_criterion(modules, type(given or self._trainer.model).__name__))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recorder.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        record = self._recorder.end()
        if record is None:
            return
        due = control.should_log
        self._trainer.log(dict(record.scalars))
        control.should_log = due  # or the trainer would take this for the log that it owes itself
        if state.is_world_process_zero:
            for tracker, run_id in self._trackers():
                write_maps(tracker, record.maps, state.global_step, run_id)  # where its scalars stand

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recorder.detach()

    def _trackers(self) -> list[tuple[Any, str | None]]:
        """What the trainer reports to: its TensorBoard writer, and the runs that W&B and MLflow keep open."""
        callbacks = self._trainer.callback_handler.callbacks
        found: list[tuple[Any, str | None]] = [(getattr(each, "tb_writer", None), None) for each in callbacks]
        if (wandb := sys.modules.get("wandb")) is not None:
            found.append((wandb.run, None))
        if (mlflow := sys.modules.get("mlflow")) is not None and mlflow.active_run() is not None:
            mlflow.flush_async_logging()  # to log an image reads the run, which a thread of Trainer's may be writing
            found.append((mlflow.MlflowClient(), mlflow.active_run().info.run_id))
        return found


def _followed_by(last: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, with ``last`` after it, whether it returns or raises."""

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            last()

    return wrapper
