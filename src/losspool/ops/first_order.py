"""Raise a clear error when a second derivative is requested."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def first_order(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Decorate a ``backward`` whose first saved tensor is the function's differentiable input.

    ``once_differentiable`` is not enough: for a constant incoming gradient it returns a tensor
    without a graph, and the resulting error does not mention the cause.
    """

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            first, *rest = backward(ctx, *grads)
        if torch.is_grad_enabled() and first is not None:
            first = _RefuseSecondDerivative.apply(first, ctx.saved_tensors[0])
        return first, *rest

    return wrapper


class _RefuseSecondDerivative(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, input: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[None, None]:
        raise RuntimeError(
            "losspool has no second derivative: its gradient treats the optimal weights as constants, "
            "so differentiating it again would ignore how they change with the losses"
        )
