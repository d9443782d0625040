"""Pooling of per-pixel losses: the solver as a custom operator, and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from losspool import kernels, solver
from losspool.ops.first_order import first_order
from losspool.solver import host


class Pooled(NamedTuple):
    """The result of each pool. For ``losses`` of shape (R, N), weights are (R, N) and all other fields (R,)."""

    value: Tensor
    weights: Tensor
    alpha: Tensor
    tau: Tensor
    valid: Tensor


class Setting(NamedTuple):
    """The settings of one call. ``m`` is a fraction of the pixels if ``share``, else a number of pixels."""

    p: float
    m: float
    share: bool
    per_image: bool
    gather: solver.Gather | None = None
    """Stacks the tensors of all ranks that share a pool; None if this process holds the whole pool."""
    ranks: int = 1
    """Number of ranks that share a pool."""


def pool(losses: Tensor, setting: Setting) -> Pooled:
    """Pool ``losses`` (R, N), which are negative for void pixels. No gradient flows."""
    if torch.compiler.is_compiling() and setting.gather is None:
        return Pooled(*_pool_operator(losses, setting.p, setting.m, setting.share))
    return _pool(losses, setting)


def _pool(losses: Tensor, setting: Setting) -> Pooled:
    solution = solver.solve(losses, p=setting.p, m=setting.m, share=setting.share, gather=setting.gather)
    weights = solver.weights(losses, solution, setting.p)
    return Pooled(solution.value, weights, solution.alpha, solution.tau, solution.valid)


# torch 2.4 cannot infer the schema from string annotations.
_SCHEMA = "(Tensor losses, float p, float m, bool share) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"


# torch.compile treats an operator as a black box, so the CPU search can stop as soon as it converges.
@torch.library.custom_op("losspool::pool", mutates_args=(), schema=_SCHEMA)
def _pool_operator(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, weights, alpha, tau, valid = _pool(losses, Setting(p, m, share, per_image=True))
    return value.clone(), weights, alpha.clone(), tau.clone(), valid.clone()  # results must not share memory


@_pool_operator.register_fake
def _(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    per_pool = losses.new_empty(losses.shape[0], dtype=host.wide_dtype(losses))
    alpha, tau, valid = (torch.empty_like(per_pool) for _ in range(3))
    return per_pool, torch.empty_like(losses), alpha, tau, valid


def combine(pooled: Pooled, setting: Setting) -> tuple[Tensor, Tensor]:
    """Return the loss over all pools, and the factor of each pool's weights in the gradient.

    ``scope="image"`` averages over the images that have a valid pixel. With ``scope="global"`` the
    factor includes the group size: each rank holds part of one pool, so the ranks' gradients must
    be summed, but DDP averages them.
    """
    filled = pooled.valid.clamp(max=1.0)
    share = filled / filled.sum().clamp_(min=1.0)
    loss = (pooled.value * share).sum()
    return loss, share if setting.ranks == 1 else share * setting.ranks


def pooled_losses(losses: Tensor, mask: Tensor | None, setting: Setting, weigh: bool) -> tuple[Any, ...]:
    """Pool (R, N) losses: return the loss, w*, α, τ and n. On GPUs w* is None unless ``weigh``."""
    if kernels.usable(losses):
        from losspool.ops.with_kernels import PoolWithKernels

        return PoolWithKernels.apply(losses, mask, setting, weigh)
    return PoolLosses.apply(losses, mask, setting)


class PoolLosses(torch.autograd.Function):
    """Map (R, N) losses to the scalar loss. By Danskin's theorem the weights are constants: the gradient is w*."""

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
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)
        return (weights * scale).to(losses.dtype), None, None
