"""The optimisation of a run: the optimizer, its learning rates, the gradient's norm, and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from losspool.segmentation.config import TrainConfig
from losspool.segmentation.models import Model


def build_optimizer(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    """SGD, which decays every weight as in the paper, or AdamW, which decays neither biases nor norms."""
    groups = model.parameter_groups(config.lr, config.head_factor)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    return torch.optim.AdamW([part for group in groups for part in _by_decay(group, config.weight_decay)])


def _by_decay(group: dict[str, Any], decay: float) -> list[dict[str, Any]]:
    """Split a group: biases and the weights of norms, which have one dimension, go without decay."""
    decayed = [each for each in group["params"] if each.ndim > 1]
    others = [each for each in group["params"] if each.ndim <= 1]
    parts = ((decayed, decay), (others, 0.0))
    return [{**group, "params": params, "weight_decay": value} for params, value in parts if params]


def set_rates(optimizer: Any, config: TrainConfig, step: int) -> None:
    """Set the learning rates of a step."""
    factor = rate_factor(config, step)
    for group in optimizer.param_groups:
        group["lr"] = config.lr * (config.head_factor if group["name"] == "head" else 1.0) * factor


def rate_factor(config: TrainConfig, step: int) -> float:
    """The learning rate of a step relative to ``train.lr``: linear warm-up, then polynomial or cosine decay to zero."""
    warm = min((step + 1) / config.warmup, 1.0) if config.warmup else 1.0
    done = step / config.steps
    decay = (1 - done) ** config.power if config.schedule == "poly" else (1 + math.cos(math.pi * done)) / 2
    return warm * decay


def clip_gradients(fabric: Fabric, network: Any, optimizer: Any, config: TrainConfig) -> Tensor:
    """Clip the gradient to the norm ``train.clip``, and return its norm before that, which stays on the device.

    All ranks have the same norm: DDP has averaged the gradients. Without a limit they are multiplied by 1, which
    changes no bit of them.
    """
    limit = config.clip or math.inf
    norm = fabric.clip_gradients(network, optimizer, max_norm=limit, error_if_nonfinite=False)
    return cast(Tensor, norm)


class AveragedWeights:
    """An exponential moving average of a network's weights. With decay 0 it averages nothing and changes nothing.

    BatchNorm's statistics are averaged like the weights, so that they belong to weights of the same age. (torch's own
    ``AveragedModel`` reads its counter at every update, and so makes the host wait for the device.)
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module, self._decay = module, decay
        self.values = {name: value.clone() for name, value in self._current().items()} if decay else {}
        """By their names in the network's state dict. Entries that are not floating-point are not averaged."""

    def _current(self) -> dict[str, Tensor]:
        state = self._module.state_dict()  # detached, in the network's own memory
        return {name: value for name, value in state.items() if torch.is_tensor(value) and value.is_floating_point()}

    def update(self, steps: int) -> None:
        """Take in the weights after ``steps`` steps. The decay begins low: the first weights are random."""
        decay = min(self._decay, (1 + steps) / (10 + steps))
        current = self._current() if self.values else {}
        for name, value in self.values.items():
            value.lerp_(current[name], 1 - decay)

    @contextmanager
    def in_network(self) -> Iterator[None]:
        """Put the averaged weights into the network, and its own back at the end."""
        current = self._current() if self.values else {}
        own = {name: current[name].clone() for name in self.values}
        try:
            for name, value in self.values.items():
                current[name].copy_(value)
            yield
        finally:
            for name, value in own.items():
                current[name].copy_(value)

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Restore the values of a checkpoint."""
        if stored.keys() != self.values.keys():
            raise ValueError(f"it has {len(stored)} averaged weights, the network {len(self.values)}")
        for name, value in stored.items():
            self.values[name].copy_(value)
