"""BatchNorm that keeps what it was loaded with."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class FrozenBatchNorm(_BatchNorm):
    """A BatchNorm that normalises by its stored statistics in training too, and does not learn.

    It takes over the parameters and buffers of the layer that it replaces, so keys and values stay.
    """

    def __init__(self, source: _BatchNorm) -> None:
        super().__init__(source.num_features, source.eps, source.momentum, source.affine, source.track_running_stats)
        self.weight, self.bias = source.weight, source.bias
        self.running_mean, self.running_var = source.running_mean, source.running_var
        self.num_batches_tracked = source.num_batches_tracked
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> FrozenBatchNorm:
        """Stay in evaluation mode, whatever the model around this layer is told."""
        super().train(False)
        return self

    def _check_input_dim(self, input: Tensor) -> None:
        """The layer that was replaced may be of any number of dimensions."""


def freeze_batch_norm(model: nn.Module) -> int:
    """Replace every BatchNorm below ``model`` by a frozen one; return how many were.

    Both the statistics and the affine parameters are frozen, as DeepLabV2 does it: the paper's
    batches of two crops are too small to estimate either.
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm) and not isinstance(child, FrozenBatchNorm)
    ]
    for parent, name, child in found:
        setattr(parent, name, FrozenBatchNorm(child))
    return len(found)
