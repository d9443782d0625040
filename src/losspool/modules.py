"""The public functions as modules: each stores its settings and calls its function."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from losspool import _validation as check
from losspool import functional
from losspool.stats import PoolingStats


class _Pooling(nn.Module):
    def __init__(self, p: float, m: float, scope: str, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        check.check_p(p)
        check.check_m(m)
        check.check_scope_name(scope)
        self.p, self.m, self.scope, self.group = p, m, scope, group

    def extra_repr(self) -> str:
        return f"p={self.p}, m={self.m}, scope={self.scope!r}"


class CrossEntropyLoss(_Pooling):
    """Module form of :func:`losspool.cross_entropy`; use it in place of ``nn.CrossEntropyLoss``.

    ``weight`` is a buffer: it moves with the module and is part of its state dict.

    Example:
        >>> import torch, losspool
        >>> criterion = losspool.CrossEntropyLoss(p=1.3, m=0.25, ignore_index=255)
        >>> criterion(torch.zeros(1, 3, 4, 4), torch.full((1, 4, 4), 255)).item()
        0.0
    """

    weight: Tensor | None

    def __init__(
        self,
        *,
        p: float = 1.3,
        m: float = 0.25,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        scope: str = "image",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(p, m, scope, group)
        check.check_ignore_index(ignore_index)
        check.check_smoothing(label_smoothing)
        if weight is not None:
            check.check_class_weight(weight)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.cross_entropy(input, target, stats=stats, **self._options())

    def _options(self) -> dict[str, Any]:
        names = ("p", "m", "weight", "ignore_index", "label_smoothing", "scope", "group")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}"


class UpsampledCrossEntropyLoss(CrossEntropyLoss):
    """Module form of :func:`losspool.upsampled_cross_entropy`, for coarse logits.

    Example:
        >>> import torch, losspool
        >>> criterion = losspool.UpsampledCrossEntropyLoss(ignore_index=255)
        >>> criterion(torch.zeros(1, 3, 4, 4), torch.full((1, 32, 32), 255)).item()
        0.0
    """

    def __init__(
        self,
        *,
        p: float = 1.3,
        m: float = 0.25,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        scope: str = "image",
        group: dist.ProcessGroup | None = None,
        align_corners: bool = False,
    ) -> None:
        super().__init__(
            p=p,
            m=m,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            scope=scope,
            group=group,
        )
        check.check_align_corners(align_corners)
        self.align_corners = align_corners

    def forward(self, input: Tensor, target: Tensor, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.upsampled_cross_entropy(
            input, target, stats=stats, align_corners=self.align_corners, **self._options()
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, align_corners={self.align_corners}"


class LossMaxPooling(_Pooling):
    """Module form of :func:`losspool.max_pool`; apply it to any per-pixel loss.

    Example:
        >>> import torch, losspool
        >>> losspool.LossMaxPooling(p=1, m=2)(torch.tensor([[4.0, 1.0, 2.0, 1.0]])).item()
        3.0
    """

    def __init__(
        self, *, p: float = 1.3, m: float = 0.25, scope: str = "image", group: dist.ProcessGroup | None = None
    ) -> None:
        super().__init__(p, m, scope, group)

    def forward(self, losses: Tensor, mask: Tensor | None = None, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.max_pool(
            losses, p=self.p, m=self.m, mask=mask, scope=self.scope, group=self.group, stats=stats
        )
