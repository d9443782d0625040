"""One call of a public function: check its arguments, pool its losses, fill in its statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from losspool import _targets as targets
from losspool import _validation as check
from losspool import kernels
from losspool._distributed import exchanger, resolve_group, shared_errors
from losspool.ops import (
    Enlargement,
    PixelLoss,
    Setting,
    kernels_read,
    pooled_cross_entropy,
    pooled_losses,
    working_dtype,
)
from losspool.solver import host
from losspool.stats import UNFILLED, PoolingStats


class Pooling(NamedTuple):
    """The arguments that all public functions share, as received."""

    p: Any
    m: Any
    scope: Any
    group: dist.ProcessGroup | None
    reduction: Any
    trim: Any
    stats: Any


class Pixel(NamedTuple):
    """The arguments of a pixel's cross-entropy, as received."""

    weight: Any
    ignore_index: Any
    label_smoothing: Any


def pool_logits(
    input: Tensor, target: Tensor, pixel: Pixel, pooling: Pooling, *, coarse: bool = False, align_corners: Any = False
) -> Tensor:
    """Pool the cross-entropy of logits (B, C, ...), or of ``coarse`` ones (B, C, h, w)."""
    group = resolve_group(pooling.scope, pooling.group)
    check.check_transforms(group is not None, pooling.stats, input, target, pixel.weight)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(input), fingerprint):
        targets.check_logits(input, target)
        targets.check_classes(input)
        check.check_ignore_index(pixel.ignore_index)
        check.check_smoothing(pixel.label_smoothing)
        target, sound = targets.read_target(input, target, pixel.ignore_index)
        if coarse:
            targets.check_enlargement(input, target)
            check.check_align_corners(align_corners)
        else:
            targets.check_target_shape(input, target)
        check.check_scope(pooling.scope, input.ndim - 2, input.shape, "input")
        hard = target.ndim < input.ndim
        # The kernels check labels, and the class weights of labels, by themselves.
        by_kernels = hard and kernels_read(input, coarse=coarse)
        weight, fair = check.read_class_weight(pixel.weight, input, values=not by_kernels)
        # On the CPU, picking the logits of bad labels raises, and labels are only looked at for the message; but other
        # processes must learn of an error before they wait. Without a void label, the number that stands for one is a
        # bad label too, which only this check finds.
        early = (group is not None or not host.host_may_look(target)) and not by_kernels
        no_void = pixel.ignore_index is None and target.dtype == torch.int64
        if (early or no_void) and hard:
            targets.check_labels(target, input.shape[1], pixel.ignore_index)
        setting = _setting(pooling, group, input, fingerprint)
    ignore = check.NO_VOID if pixel.ignore_index is None else int(pixel.ignore_index)
    loss = PixelLoss(ignore, float(pixel.label_smoothing))
    enlargement = Enlargement(target.shape[-2], target.shape[-1], align_corners) if coarse else None
    try:
        found = pooled_cross_entropy(
            *_flat(input, target, coarse), weight, loss, enlargement, setting, pooling.stats is not None
        )
    except (IndexError, RuntimeError):
        if host.host_may_look(target) and hard:
            targets.check_labels(target, input.shape[1], pixel.ignore_index)
        raise
    shape = target.shape if hard else (target.shape[0], *target.shape[2:])
    return check.nan_unless(_finish(found, pooling.stats, shape), sound, fair)


def _flat(input: Tensor, target: Tensor, coarse: bool) -> tuple[Tensor, Tensor]:
    """Return logits as (B, C, N), unless they are coarse, and labels as (B, N) or probabilities as (B, C, N)."""
    if input.ndim == 2:  # the batch is one image: (N, C) -> (1, C, N)
        return input.t().unsqueeze(0), target.t().unsqueeze(0)
    if target.ndim == input.ndim:
        labels = target.flatten(2)
    else:
        labels = target.reshape(target.shape[0], math.prod(target.shape[1:]))  # an empty batch cannot be flattened
    return input if coarse else input.flatten(2), labels


def pool_binary(
    input: Tensor, target: Tensor, weight: Any, pos_weight: Any, mask: Tensor | None, pooling: Pooling
) -> Tensor:
    """Pool the binary cross-entropy of logits (B, ...)."""
    group = resolve_group(pooling.scope, pooling.group)
    check.check_transforms(group is not None, pooling.stats, input, target, mask)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(input), fingerprint):
        targets.check_logits(input, target)
        if input.ndim == 0:
            raise ValueError("input must have at least one dimension, got a scalar tensor")
        # A single value per image would be a pool of its own: the plain mean.
        axes = 0 if input.ndim == 2 and input.shape[1] == 1 else input.ndim - 1
        check.check_scope(pooling.scope, axes, input.shape, "input")
        mask = check.read_mask(mask, input, "input")
        target, sound = targets.read_binary_target(input, target, mask)
        factor, fair = check.read_scale(weight, "weight", input)
        pos_factor, pos_fair = check.read_scale(pos_weight, "pos_weight", input)
        setting = _setting(pooling, group, input, fingerprint)
    logits = input.to(target.dtype)
    if mask is not None:  # whatever masked logits and targets are
        logits, target = logits.masked_fill(~mask, 0.0), target.masked_fill(~mask, 0.0)
    losses = F.binary_cross_entropy_with_logits(logits, target, factor, pos_weight=pos_factor, reduction="none")
    found = _pool_flat(losses.clamp(min=0.0), mask, setting, pooling.stats is not None)  # rounding may go below
    return check.nan_unless(_finish((*found, None), pooling.stats, input.shape), sound, fair, pos_fair)


def pool_losses(losses: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """Pool losses (B, ...)."""
    found = _pool(losses, mask, pooling, weigh=pooling.stats is not None)
    return _finish((*found, None), pooling.stats, losses.shape)


def weigh_losses(losses: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """Return the weights of losses (B, ...)."""
    losses = losses.detach() if isinstance(losses, Tensor) else losses
    return _pool(losses, mask, pooling, weigh=True)[1].view(losses.shape)


def _pool(losses: Tensor, mask: Tensor | None, pooling: Pooling, weigh: bool) -> tuple[Any, ...]:
    group = resolve_group(pooling.scope, pooling.group)
    check.check_transforms(group is not None, pooling.stats, losses, mask)
    fingerprint: list[str] = []
    with shared_errors(group, _device_of(losses), fingerprint):
        check.check_losses(losses)
        mask = check.read_mask(mask, losses, "losses")
        check.check_scope(pooling.scope, losses.ndim - 1, losses.shape, "losses")
        if not kernels.usable(losses):  # the kernels check by themselves
            values = losses.detach() if mask is None else losses.detach().masked_fill(~mask, 0.0)
            check.check_non_negative(values, "losses")
        setting = _setting(pooling, group, losses, fingerprint)
    return _pool_flat(losses, mask, setting, weigh)


def _pool_flat(losses: Tensor, mask: Tensor | None, setting: Setting, weigh: bool) -> tuple[Any, ...]:
    rows = losses.shape[0] if setting.per_image else 1
    flat = losses.reshape(rows, -1) if losses.numel() else losses.reshape(rows, 0)
    return pooled_losses(flat, None if mask is None else mask.reshape(flat.shape), setting, weigh)


def _device_of(value: object) -> torch.device:
    return value.device if isinstance(value, Tensor) else torch.device("cpu")


def _setting(pooling: Pooling, group: dist.ProcessGroup | None, values: Tensor, fingerprint: list[str]) -> Setting:
    check.check_stats(pooling.stats)
    check.check_reduction(pooling.reduction)
    pixels, share = check.check_m(pooling.m)
    setting = Setting(
        check.check_p(pooling.p),
        pixels,
        share,
        per_image=pooling.scope == "image",
        trim=check.check_trim(pooling.trim),
        each=pooling.reduction == "pool",
    )
    if group is None:
        return setting
    if not host.has_float64(values):
        raise ValueError(f'scope="global" adds up in float64, which {values.device} does not have; use scope="batch"')
    fingerprint += [f"{name} = {getattr(pooling, name)!r}" for name in ("p", "m", "trim", "reduction")]
    fingerprint.append(f"{working_dtype(values)}")
    return setting._replace(exchange=exchanger(group), ranks=dist.get_world_size(group))


def _finish(found: tuple[Any, ...], stats: PoolingStats | None, shape: Sequence[int]) -> Tensor:
    """Return the loss, and fill in the statistics if there are any."""
    loss, weights, alpha, tau, valid, trimmed, prediction = found
    if stats is not None:
        stats.alpha, stats.tau, stats.valid = alpha, tau, valid.long()
        bound = tau.to(weights.dtype).unsqueeze(1)
        stats.saturated = ((weights >= bound) & (bound > 0)).sum(1)
        stats.trimmed = torch.zeros_like(stats.valid) if trimmed is None else trimmed
        stats.weights = weights.view(shape)
        stats.prediction = UNFILLED if prediction is None else prediction.view(shape)
    return loss
