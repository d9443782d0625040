"""Pooling of per-pixel losses: the solver behind an operator, and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from losspool import solver
from losspool.ops.first_order import first_order


class Pooled(NamedTuple):
    """Every pool's result. ``losses`` of shape (R, N) give weights (R, N), all else is (R,)."""

    value: Tensor
    weights: Tensor
    alpha: Tensor
    tau: Tensor
    valid: Tensor


class Setting(NamedTuple):
    """What a call pools with: ``m`` is a share of the pixels if ``share``, else their number."""

    p: float
    m: float
    share: bool
    per_image: bool
    gather: solver.Gather | None = None
    """Stacks the tensors of all ranks that share one pool; None where this process has it all."""
    ranks: int = 1
    """How many they are."""


def pool(losses: Tensor, setting: Setting) -> Pooled:
    """Pool ``losses`` (R, N), in which a void pixel is negative. No gradient flows."""
    if torch.compiler.is_compiling() and setting.gather is None:
        return Pooled(*_pool_operator(losses, setting.p, setting.m, setting.share))
    return _pool(losses, setting)


def _pool(losses: Tensor, setting: Setting) -> Pooled:
    solution = solver.solve(losses, p=setting.p, m=setting.m, share=setting.share, gather=setting.gather)
    weights = solver.weights(losses, solution, setting.p)
    return Pooled(solution.value, weights, solution.alpha, solution.tau, solution.valid)


# torch 2.4 cannot read it from annotations that are text.
_SCHEMA = "(Tensor losses, float p, float m, bool share) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"


# An operator is a black box to torch.compile: the CPU's search may stop as soon as it is done.
@torch.library.custom_op("losspool::pool", mutates_args=(), schema=_SCHEMA)
def _pool_operator(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _pool(losses, Setting(p, m, share, per_image=True))


@_pool_operator.register_fake
def _(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    per_pool = losses.new_empty(losses.shape[0], dtype=torch.float64)
    alpha, tau, valid = (torch.empty_like(per_pool) for _ in range(3))
    return per_pool, torch.empty_like(losses), alpha, tau, valid


def combine(pooled: Pooled, setting: Setting) -> tuple[Tensor, Tensor]:
    """The loss of all pools, and the factor that each pool's weights carry in its gradient.

    ``scope="image"`` averages over the images that have a valid pixel. Under ``scope="global"``
    the factor is the group's size: DDP averages the gradients of the ranks, of which each holds
    a part of one pool, where their sum is meant.
    """
    filled = pooled.valid > 0
    share = filled.double() / filled.sum().clamp(min=1)
    loss = (torch.where(filled, pooled.value, 0.0) * share).sum()
    return loss, share if setting.ranks == 1 else share * setting.ranks


class PoolLosses(torch.autograd.Function):
    """(R, N) losses to the scalar loss. The weights are constants (Danskin): the gradient is w*."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor | None, setting: Setting) -> tuple[Tensor, ...]:
        values = losses if losses.dtype == torch.float64 else losses.float()
        values = values if mask is None else torch.where(mask, values, -1.0)
        pooled = pool(values, setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(losses, pooled.weights, factor)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(pooled.weights, pooled.alpha, pooled.tau, pooled.valid)
        return loss.to(values.dtype), pooled.weights, pooled.alpha, pooled.tau, pooled.valid

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        losses, weights, factor = ctx.saved_tensors
        scale = (grad.double() * factor).to(weights.dtype).unsqueeze(1)
        return (weights * scale).to(losses.dtype), None, None
