"""Pooling of per-pixel losses: the solver as a custom operator, and its gradient."""

from __future__ import annotations

import math
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
    trimmed: Tensor | None = None
    """The number of trimmed losses, of this process; None if nothing is trimmed."""


class Setting(NamedTuple):
    """The settings of one call. ``m`` is a fraction of the pixels if ``share``, else a number of pixels."""

    p: float
    m: float
    share: bool
    per_image: bool
    exchange: solver.Exchange | None = None
    """Adds what the ranks that share a pool have found; None if this process holds the whole pool."""
    ranks: int = 1
    """Number of ranks that share a pool."""
    trim: float = 0.0
    """The share of each pool's largest losses that is left out."""
    each: bool = False
    """Whether the result is one loss per pool, instead of their average."""


def trim(losses: Tensor, setting: Setting) -> tuple[Tensor, Tensor | None]:
    """Make the largest losses void, and count them."""
    if not setting.trim:
        return losses, None
    largest = solver.trimmed(losses.detach(), setting.trim, setting.exchange)
    return losses.masked_fill(largest, -1.0), largest.sum(1)


def pool(losses: Tensor, setting: Setting) -> Pooled:
    """Pool ``losses`` (R, N), which are negative for void pixels. No gradient flows."""
    losses, trimmed = trim(losses, setting)
    if torch.compiler.is_compiling() and setting.exchange is None:
        return Pooled(*_pool_operator(losses, setting.p, setting.m, setting.share))._replace(trimmed=trimmed)
    return _pool(losses, setting)._replace(trimmed=trimmed)


def _pool(losses: Tensor, setting: Setting) -> Pooled:
    solution = solver.solve(losses, p=setting.p, m=setting.m, share=setting.share, exchange=setting.exchange)
    weights = solver.weights(losses, solution, setting.p)
    return Pooled(solution.value, weights, solution.alpha, solution.tau, solution.valid)


# torch.compile treats an operator as a black box, so the CPU search can stop as soon as it converges.
@torch.library.custom_op("losspool::pool", mutates_args=())
def _pool_operator(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, weights, alpha, tau, valid, _ = _pool(losses, Setting(p, m, share, per_image=True))
    return value.clone(), weights, alpha.clone(), tau.clone(), valid.clone()  # results must not share memory


@_pool_operator.register_fake
def _(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    per_pool = losses.new_empty(losses.shape[0], dtype=host.wide_dtype(losses))
    alpha, tau, valid = (torch.empty_like(per_pool) for _ in range(3))
    return per_pool, torch.empty_like(losses), alpha, tau, valid


def _keep_weights(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0], output[1])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


@first_order
def _losses_gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 4
    _, weights = ctx.saved_tensors
    return weights * grad.to(weights.dtype).unsqueeze(1), None, None, None


# An exported graph holds the operator, and is differentiated later.
_pool_operator.register_autograd(_losses_gradient, setup_context=_keep_weights)


class _PoolInTransform(torch.autograd.Function):
    """The operator for transforms of ``torch.func``, which do not take the gradient of an operator."""

    setup_context = staticmethod(_keep_weights)
    backward = staticmethod(_losses_gradient)

    @staticmethod
    def forward(losses: Tensor, p: float, m: float, share: bool) -> tuple[Tensor, ...]:
        return _pool_operator(losses, p, m, share)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "losspool has no forward-mode derivatives, as in jvp, jacfwd and hessian; use torch.func.grad or jacrev"
        )

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], losses: Tensor, *options: Any) -> tuple[Any, ...]:
        """There are more pools."""
        losses = losses.movedim(dims[0] or 0, 0)  # (V, R, N)
        found = _PoolInTransform.apply(losses.flatten(0, 1), *options)
        return tuple(each.unflatten(0, losses.shape[:2]) for each in found), (0,) * len(found)


def combine(pooled: Pooled, setting: Setting) -> tuple[Tensor, Tensor]:
    """Return the loss over all pools, and the factor of each pool's weights in the gradient.

    ``scope="image"`` averages over the images that have a valid pixel. With ``scope="global"`` the
    factor includes the group size: each rank holds part of one pool, so the ranks' gradients must
    be summed, but DDP averages them.
    """
    if setting.each:
        return pooled.value, torch.full_like(pooled.value, setting.ranks)
    filled = pooled.valid.clamp(max=1.0)
    share = filled / filled.sum().clamp(min=1.0)
    loss = (pooled.value * share).sum()
    return loss, share if setting.ranks == 1 else share * setting.ranks


def pooled_losses(losses: Tensor, mask: Tensor | None, setting: Setting, weigh: bool) -> tuple[Any, ...]:
    """Pool (R, N) losses: return the loss, w*, α, τ, n and the number of trimmed losses.

    On GPUs w* is None unless ``weigh``; the last is None if nothing is trimmed.
    """
    if host.is_symbolic(losses, mask):
        return _pool_symbols(losses, mask, setting)
    if kernels.usable(losses):
        from losspool.ops.with_kernels import PoolWithKernels

        return PoolWithKernels.apply(losses, mask, setting, weigh)
    return PoolLosses.apply(losses, mask, setting)


def _pool_symbols(losses: Tensor, mask: Tensor | None, setting: Setting) -> tuple[Any, ...]:
    """Pool by operations that tracers and transforms follow, the operator among them."""
    values = losses.to(torch.float64 if losses.dtype == torch.float64 else torch.float32)
    values = values.masked_fill(values < 0, math.nan)  # the host does not check them: they show in the result
    values = values if mask is None else values.masked_fill(~mask, -1.0)
    kept, trimmed = trim(values, setting)
    solve = _PoolInTransform.apply if host.is_wrapped(kept) else _pool_operator
    pooled = Pooled(*solve(kept, setting.p, setting.m, setting.share))._replace(trimmed=trimmed)
    return combine(pooled, setting)[0].to(values.dtype), *pooled[1:]


class PoolLosses(torch.autograd.Function):
    """Map (R, N) losses to the loss. By Danskin's theorem the weights are constants: the gradient is w*."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor | None, setting: Setting) -> tuple[Any, ...]:
        values = losses if losses.dtype == torch.float64 else losses.float()
        values = values if mask is None else torch.where(mask, values, -1.0)
        pooled = pool(values, setting)
        loss, factor = combine(pooled, setting)
        ctx.save_for_backward(losses, pooled.weights, factor)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(each for each in pooled[1:] if each is not None))
        return loss.to(values.dtype), *pooled[1:]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        losses, weights, factor = ctx.saved_tensors
        scale = (grad.to(factor.dtype) * factor).to(weights.dtype).unsqueeze(1)
        return (weights * scale).to(losses.dtype), None, None
