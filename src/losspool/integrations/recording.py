"""What the loss did in a step, for the callbacks: caught by hooks of its module, and written to trackers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from losspool import BCEWithLogitsLoss, CrossEntropyLoss, LossMaxPooling, PoolingStats
from losspool.stats import class_mass

_MOST_CURVES = 256
"""A language model has a class per token: unnamed classes beyond this get no curves."""


@dataclass(frozen=True)
class Record:
    """The first call of the loss in a step."""

    step: int
    scalars: dict[str, float]
    """``pooling/alpha``, ``pooling/saturated``, and for each class its share of the weight and of the pixels."""
    maps: list[Tensor]
    """(H, W), uint8: an image's weights relative to τ, so that saturated pixels are white. Volumes, and several labels
    per pixel, are projected: the largest weight along the axis."""


def find_criterion(modules: Iterable[Any], where: str) -> nn.Module:
    """The first module of losspool."""
    for module in modules:
        if isinstance(module, CrossEntropyLoss | BCEWithLogitsLoss | LossMaxPooling):
            return module
    raise ValueError(
        f"PoolingMonitor found no module of losspool in {where}; pass criterion=, a module that the training calls "
        f"(losspool.CrossEntropyLoss, not losspool.cross_entropy)"
    )


class Recorder:
    """Asks a module of losspool for the statistics of some steps. Nothing is solved twice."""

    def __init__(self, every: int, classes: Sequence[str] | None, maps: int) -> None:
        for name, value, least in (("every", every, 1), ("maps", maps, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
        self._every, self._maps = every, maps
        self._classes = None if classes is None else list(classes)
        self._step, self._wanted = -1, False
        self._found: Record | None = None
        self._hooks: list[Any] = []

    def attach(self, criterion: nn.Module) -> None:
        self.detach()
        self._hooks = [
            criterion.register_forward_pre_hook(self._before, with_kwargs=True),
            criterion.register_forward_hook(self._after, with_kwargs=True),
        ]

    def detach(self) -> None:
        """Remove the hooks, which would go into copies and pickles of the module, and forget an unfinished step."""
        while self._hooks:
            self._hooks.pop().remove()
        self._step, self._wanted, self._found = -1, False, None

    def begin(self, step: int) -> None:
        """Before each batch: ``step`` counts from 0, and does not change while gradients accumulate."""
        self._wanted = step != self._step and step % self._every == 0
        self._step = step

    def end(self) -> Record | None:
        """After each batch: its record, if it has one. Calls before the next batch are not recorded."""
        self._wanted, found, self._found = False, self._found, None
        return found

    def _before(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        if self._wanted and kwargs.get("stats") is None:
            return args, {**kwargs, "stats": PoolingStats()}
        return None

    def _after(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Tensor) -> None:
        if not self._wanted:
            return
        self._wanted = False
        stats = kwargs["stats"]
        valid, scalars = stats.valid.sum(), {}
        if isinstance(module, CrossEntropyLoss):
            call = dict(zip(("input", "target"), args, strict=False), **kwargs)
            mass, pixels = _by_class(stats, module, call["target"], call["input"].shape[1])
            scalars = self._shares("mass", mass) | self._shares("pixels", pixels)
            if module.scope == "global":  # stats.valid counts the pixels of all processes, the rest those of this one
                valid = pixels.sum() - stats.trimmed.sum()
        scalars["pooling/alpha"] = float(stats.alpha.sum() / (stats.valid > 0).sum().clamp(min=1))
        scalars["pooling/saturated"] = float(stats.saturated.sum() / valid.clamp(min=1))
        self._found = Record(self._step, scalars, _draw(stats, self._maps))

    def _shares(self, what: str, values: Tensor) -> dict[str, float]:
        names = self._classes
        if names is None and len(values) > _MOST_CURVES:
            return {}
        if names is not None and len(names) != len(values):
            raise ValueError(
                f"PoolingMonitor got {len(names)} names in classes=, but the logits have {len(values)} classes"
            )
        shares = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
        names = names or [str(index) for index in range(len(values))]
        return {f"pooling/{what}/{name}": share for name, share in zip(names, shares.tolist(), strict=True)}


def _by_class(stats: PoolingStats, module: CrossEntropyLoss, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """(C,) and (C,): the weight and the number of valid pixels of each class."""
    shape = stats.weights.shape
    if target.numel() == stats.weights.numel():
        # As int64: an unsigned label would be compared with a negative one after wrapping around.
        valid = target.reshape(shape).long() != (-1 if module.ignore_index is None else module.ignore_index)
    else:  # class probabilities
        valid = torch.ones(shape, dtype=torch.bool, device=target.device)
    return class_mass(stats.weights, target, classes), class_mass(valid, target, classes)


def _draw(stats: PoolingStats, most: int) -> list[Tensor]:
    weights = stats.weights
    if weights.ndim < 3:  # tokens or single predictions
        return []
    tau = stats.tau.to(weights.dtype).clamp(min=torch.finfo(weights.dtype).tiny)
    relative = (weights / tau.view(-1, *[1] * (weights.ndim - 1)))[:most]
    while relative.ndim > 3:
        relative = relative.amax(1)
    return list((relative.clamp(max=1) * 255).round().to("cpu", torch.uint8))


def write_maps(tracker: Any, maps: Sequence[Tensor], step: int, run_id: str | None = None) -> None:
    """Write weight maps to TensorBoard's writer, W&B's run, or MLflow's client and the id of its run.

    Trackers without pictures, such as CSV files, get none.
    """
    arrays = {f"pooling/weights/{index}": image.numpy() for index, image in enumerate(maps)}
    if hasattr(tracker, "add_image"):
        for name, array in arrays.items():
            tracker.add_image(name, array, step, dataformats="HW")
    elif run_id is not None and hasattr(tracker, "log_image"):
        for name, array in arrays.items():
            tracker.log_image(run_id, array, key=name, step=step)
    elif arrays and type(tracker).__module__.startswith("wandb."):
        import wandb

        tracker.log({name: wandb.Image(array) for name, array in arrays.items()})
