"""BatchNorm with frozen statistics and parameters."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

BatchNormMode = Literal["frozen", "train", "sync"]
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class FrozenBatchNorm(nn.Module):
    """BatchNorm that uses its stored statistics in training too, and does not learn.

    It takes over the parameters and buffers of the layer it replaces, so the state dict is unchanged.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(self, source: nn.BatchNorm2d) -> None:
        super().__init__()
        self.num_features, self.eps = source.num_features, source.eps
        for name in ("weight", "bias"):
            self.register_parameter(name, getattr(source, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(source, name))
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> FrozenBatchNorm:
        """Stay in evaluation mode, whatever the mode of the surrounding model."""
        super().train(False)
        return self

    def forward(self, input: Tensor) -> Tensor:
        # Without stored statistics only the affine part can be frozen: use the statistics of the batch.
        batch_statistics = self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, batch_statistics, 0.0, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


def freeze_batch_norm(model: nn.Module) -> int:
    """Replace every BatchNorm layer inside ``model`` by a frozen one, and return their number.

    As in DeepLabV2, both the statistics and the affine parameters are frozen: the paper's batches
    of two crops are too small to estimate either.
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, BATCH_NORMS)
    ]
    for parent, name, child in found:
        setattr(parent, name, FrozenBatchNorm(child))  # type: ignore[arg-type]  # all have the same attributes
    return len(found)
