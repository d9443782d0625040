"""The optimisation of a run: the optimizer, its learning rates, and the gradient's norm."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

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
