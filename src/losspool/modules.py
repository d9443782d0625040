"""The public functions as modules: each stores its settings and calls its function."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor, nn

from losspool import _validation as check
from losspool import functional
from losspool._distributed import LostGroup
from losspool._validation import Reduction, Scope, refuse_deprecated
from losspool.stats import PoolingStats


class _Pooling(nn.Module):
    # Modules that an earlier version pickled have neither.
    reduction: Reduction = "mean"
    trim: float | str = 0.0

    _own: tuple[str, ...] = ()
    """The arguments that not all functions take."""

    def __init__(
        self,
        reduction: Reduction,
        p: float,
        m: float | str,
        scope: Scope,
        group: dist.ProcessGroup | None,
        trim: float | str,
    ) -> None:
        super().__init__()
        check.check_pooling(p, m, scope, reduction, trim)
        self.reduction, self.scope, self.group = reduction, scope, group
        self.p, self.m, self.trim = check.plain(p), check.plain(m), check.plain(trim)

    def _options(self) -> dict[str, Any]:
        names = (*self._own, "reduction", "p", "m", "scope", "group", "trim")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        pooled = "" if self.reduction == "mean" else f", reduction={self.reduction!r}"
        trim = f", trim={self.trim!r}" if self.trim else ""
        return f"p={self.p}, m={self.m!r}, scope={self.scope!r}{pooled}{trim}"

    __prepare_scriptable__ = check.refuse_script

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Share the process group, which cannot be copied."""
        memo[id(self.group)] = self.group
        memo[id(self)] = new = self.__class__.__new__(self.__class__)
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    def __copy__(self) -> Any:
        """Share the process group, which pickling would leave out."""
        new = self.__class__.__new__(self.__class__)
        new.__dict__.update(self.__dict__)
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Name the ranks of the process group, which cannot leave its process."""
        return {**self.__dict__, "group": LostGroup.of(self.group)}


class CrossEntropyLoss(_Pooling):
    """Module form of :func:`losspool.cross_entropy`; use it in place of ``nn.CrossEntropyLoss``.

    Args:
        weight: non-negative class weights of shape (C,), a tensor or a list. A buffer: it moves
            with the module and is part of its state dict.
        ignore_index: label of void pixels; None if no pixel is void.
        label_smoothing: smoothing in [0, 1].
        reduction: ``"mean"`` over the pools, or ``"pool"`` for one value per pool.
        p: norm exponent, from 1 (only the hardest pixels count) to ``math.inf`` (the plain mean).
        m: minimum number of pixels that share the weight: a float or ``"25%"`` is a fraction of
            the valid pixels, an int or ``"1000px"`` a number of them.
        scope: pool each ``"image"``, the ``"batch"``, or the ``"global"`` batch of all processes.
        group: process group for ``scope="global"``. A deep copy shares it; a pickled module
            stores only its ranks: set ``module.group`` after loading.
        trim: share of each pool's largest losses that is left out, against label noise.

    Call it with logits (B, C, ...) and class indices (B, ...) or (B, 1, ...), or class
    probabilities (B, C, ...); ``stats=`` takes a :class:`losspool.PoolingStats`.

    Example:
        >>> import torch, losspool
        >>> criterion = losspool.CrossEntropyLoss(p=1.3, m=0.25, ignore_index=255)
        >>> criterion(torch.zeros(1, 3, 4, 4), torch.full((1, 4, 4), 255)).item()
        0.0
    """

    weight: Tensor | None
    _own: tuple[str, ...] = ("weight", "ignore_index", "label_smoothing")

    @refuse_deprecated
    def __init__(
        self,
        weight: Tensor | Sequence[float] | None = None,
        *,
        ignore_index: int | None = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        p: float = 1.3,
        m: float | str = 0.25,
        scope: Scope = "image",
        group: dist.ProcessGroup | None = None,
        trim: float | str = 0.0,
    ) -> None:
        super().__init__(reduction, p, m, scope, group, trim)
        check.check_ignore_index(ignore_index)
        check.check_smoothing(label_smoothing)
        self.register_buffer("weight", None if weight is None else check.check_class_weight(weight))
        self.ignore_index, self.label_smoothing = check.plain(ignore_index), check.plain(label_smoothing)

    def forward(self, input: Tensor, target: Tensor, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.cross_entropy(input, target, stats=stats, **self._options())

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}"


class UpsampledCrossEntropyLoss(CrossEntropyLoss):
    """Module form of :func:`losspool.upsampled_cross_entropy`, for coarse logits.

    Args:
        align_corners: as in ``F.interpolate``.
        weight, ignore_index, label_smoothing, reduction, p, m, scope, group, trim: see
            :class:`CrossEntropyLoss`.

    Example:
        >>> import torch, losspool
        >>> criterion = losspool.UpsampledCrossEntropyLoss(ignore_index=255)
        >>> criterion(torch.zeros(1, 3, 4, 4), torch.full((1, 32, 32), 255)).item()
        0.0
    """

    _own = ("weight", "ignore_index", "label_smoothing", "align_corners")

    @refuse_deprecated
    def __init__(
        self,
        weight: Tensor | Sequence[float] | None = None,
        *,
        ignore_index: int | None = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        p: float = 1.3,
        m: float | str = 0.25,
        scope: Scope = "image",
        group: dist.ProcessGroup | None = None,
        trim: float | str = 0.0,
        align_corners: bool = False,
    ) -> None:
        super().__init__(
            weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
            p=p,
            m=m,
            scope=scope,
            group=group,
            trim=trim,
        )
        check.check_align_corners(align_corners)
        self.align_corners = align_corners

    def forward(self, input: Tensor, target: Tensor, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.upsampled_cross_entropy(input, target, stats=stats, **self._options())

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, align_corners={self.align_corners}"


class BCEWithLogitsLoss(_Pooling):
    """Module form of :func:`losspool.binary_cross_entropy_with_logits`, in place of ``nn.BCEWithLogitsLoss``.

    Args:
        weight: non-negative factors of the losses, broadcastable to the logits; a buffer.
        pos_weight: non-negative factors of the positive part, broadcastable to the logits: for
            labels of shape (B, C, H, W) a tensor of shape (C, 1, 1); a buffer.
        reduction, p, m, scope, group, trim: see :class:`CrossEntropyLoss`.

    Call it with logits and targets (B, ...), and with a ``mask`` that is True where a loss counts.

    Example:
        >>> import torch, losspool
        >>> criterion = losspool.BCEWithLogitsLoss(pos_weight=2.0)
        >>> round(criterion(torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)).item(), 4)
        1.3863
    """

    weight: Tensor | None
    pos_weight: Tensor | None
    _own = ("weight", "pos_weight")

    @refuse_deprecated
    def __init__(
        self,
        weight: Tensor | Sequence[float] | None = None,
        *,
        pos_weight: Tensor | Sequence[float] | float | None = None,
        reduction: Reduction = "mean",
        p: float = 1.3,
        m: float | str = 0.25,
        scope: Scope = "image",
        group: dist.ProcessGroup | None = None,
        trim: float | str = 0.0,
    ) -> None:
        super().__init__(reduction, p, m, scope, group, trim)
        for name, value in (("weight", weight), ("pos_weight", pos_weight)):
            self.register_buffer(name, None if value is None else check.check_scale(value, name))

    def forward(
        self, input: Tensor, target: Tensor, mask: Tensor | None = None, *, stats: PoolingStats | None = None
    ) -> Tensor:
        return functional.binary_cross_entropy_with_logits(input, target, mask=mask, stats=stats, **self._options())

    if TYPE_CHECKING:
        __call__ = forward


class LossMaxPooling(_Pooling):
    """Module form of :func:`losspool.max_pool`; apply it to any per-pixel loss.

    Args:
        reduction, p, m, scope, group, trim: see :class:`CrossEntropyLoss`.

    Example:
        >>> import torch, losspool
        >>> losspool.LossMaxPooling(p=1, m=2)(torch.tensor([[4.0, 1.0, 2.0, 1.0]])).item()
        3.0
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        p: float = 1.3,
        m: float | str = 0.25,
        scope: Scope = "image",
        group: dist.ProcessGroup | None = None,
        trim: float | str = 0.0,
    ) -> None:
        super().__init__(reduction, p, m, scope, group, trim)

    def forward(self, losses: Tensor, mask: Tensor | None = None, *, stats: PoolingStats | None = None) -> Tensor:
        return functional.max_pool(losses, mask=mask, stats=stats, **self._options())

    if TYPE_CHECKING:
        __call__ = forward
