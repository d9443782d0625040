"""Averaged weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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
