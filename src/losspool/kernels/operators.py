"""What the kernels offer to the rest of the package: five operators, without gradients.

Under ``torch.compile`` each is an opaque custom operator; otherwise it is called directly, which
is faster. No operator makes the host wait for the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from losspool.kernels import cross_entropy, pooling, upsampled
from losspool.kernels.launch import ceil_div, exponents, power_of_two, run
from losspool.kernels.solve import BLOCK, Exchange, solve

VALUE, ALPHA, TAU, COUNT, UNIT = (
    column.value for column in (pooling.VALUE, pooling.ALPHA, pooling.TAU, pooling.COUNT, pooling.UNIT)
)
"""Columns of the table of pools."""
_PIXELS = 256  # per program, full size
_ROW_PIXELS = 128  # per program, upsampled
_CLASSES, _GAPS = 8, 16  # per program, upsampled backward
_CELLS = 256  # per program, merging corners
_WIDE = 2**31  # numbers from here on do not fit an int32

Function = TypeVar("Function", bound=Callable[..., Any])


def _operator(schema: str, fake: Callable[..., Any]) -> Callable[[Function], Function]:
    """Register a function whose first argument is a tensor as the operator ``losspool::<its name>``."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def on_device(*arguments: Any) -> Any:
            with torch.cuda.device_of(arguments[0]):  # Triton launches on the current device
                return function(*arguments)

        opaque = torch.library.custom_op(f"losspool::{function.__name__}", on_device, mutates_args=(), schema=schema)
        opaque.register_fake(fake)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return opaque(*arguments) if torch.compiler.is_compiling() else on_device(*arguments)

        return call  # type: ignore[return-value]

    return decorate


def _fake_solution(losses: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    table = losses.new_empty(losses.shape[0], pooling.COLUMNS.value, dtype=torch.float64)
    return losses.new_empty((), dtype=torch.float32), table, losses.new_empty(1, dtype=torch.float64)


@_operator(
    "(Tensor losses, Tensor? mask, float p, float m, bool share, bool from_logits) -> (Tensor, Tensor, Tensor)",
    _fake_solution,
)
def pool_losses(
    losses: Tensor, mask: Tensor | None, p: float, m: float, share: bool, from_logits: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve the pools of ``losses`` (R, N). Return the loss, the table of pools, and the gradient's factor."""
    return solve(losses, mask, p, m, share, from_logits=from_logits)


def pool_shared_losses(
    losses: Tensor,
    mask: Tensor | None,
    p: float,
    m: float,
    share: bool,
    from_logits: bool,
    exchange: Exchange,
    ranks: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do as ``pool_losses`` for pools that several ranks share; torch.compile breaks the graph here."""
    with torch.cuda.device_of(losses):
        return solve(losses, mask, p, m, share, from_logits=from_logits, exchange=exchange, ranks=ranks)


@_operator(
    "(Tensor losses, Tensor? mask, Tensor table, float p) -> Tensor",
    lambda losses, *_: torch.empty_like(losses, dtype=torch.float32),
)
def pixel_weights(losses: Tensor, mask: Tensor | None, table: Tensor, p: float) -> Tensor:
    """Return w* of every pixel of ``losses`` (R, N), as float32."""
    return _weigh(losses, mask, table, None, None, p, torch.empty_like(losses, dtype=torch.float32))


@_operator(
    "(Tensor losses, Tensor? mask, Tensor table, Tensor factor, Tensor grad, float p) -> Tensor",
    lambda losses, *_: torch.empty_like(losses),
)
def losses_gradient(
    losses: Tensor, mask: Tensor | None, table: Tensor, factor: Tensor, grad: Tensor, p: float
) -> Tensor:
    """Return the gradient of the pooled loss with respect to ``losses`` (R, N), in their dtype."""
    return _weigh(losses, mask, table, factor, grad, p, torch.empty_like(losses))


def _weigh(
    losses: Tensor,
    mask: Tensor | None,
    table: Tensor,
    factor: Tensor | None,
    grad: Tensor | None,
    p: float,
    out: Tensor,
) -> Tensor:
    pools, size = losses.shape
    parts = ceil_div(size, BLOCK)
    constants: dict[str, Any] = {"MASKED": mask is not None, "GRADIENT": grad is not None, "BLOCK": BLOCK}
    numbers = (size, parts, exponents(p).less_one)
    run(pooling.weigh, parts * pools, losses, mask, table, factor, grad, out, *numbers, **constants)
    return out


def _fake_pixel_losses(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
    predict: bool,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    losses, peaks, log_totals = (torch.empty_like(target, dtype=torch.float32) for _ in range(3))
    return losses, peaks, log_totals, target.new_empty(target.shape if predict else (0,), dtype=torch.int64)


@_operator(
    "(Tensor logits, Tensor target, Tensor? class_weight, int ignore_index, float smoothing, bool predict,"
    " SymInt[] size, bool align_corners) -> (Tensor, Tensor, Tensor, Tensor)",
    _fake_pixel_losses,
)
def pixel_losses(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
    predict: bool,
    size: Sequence[int],
    align_corners: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss of every pixel, the maximum of its logits, the logarithm of Σ exp(x - maximum), and its class.

    ``logits`` are (B, C, N), or (B, C, h, w) and enlarged to ``size``; ``target`` is (B, N) and contiguous.
    Without ``predict`` the last result is empty.
    """
    fake = _fake_pixel_losses(logits, target, class_weight, ignore_index, smoothing, predict)
    options = {**_pixel_options(logits, class_weight, smoothing), "PREDICT": predict}
    tensors = (logits, target, class_weight, *fake)
    if size:
        parts = ceil_div(size[1], _ROW_PIXELS)
        numbers = (*size, *logits.shape[2:], parts, *logits.stride(), ignore_index)
        options |= {"BLOCK": _ROW_PIXELS, **_enlargement_options(logits, size, align_corners)}
        run(upsampled.upsampled_forward, target.shape[0] * size[0] * parts, *tensors, *numbers, **options)
    else:
        parts = ceil_div(target.shape[1], _PIXELS)
        numbers = (target.shape[1], parts, *logits.stride(), ignore_index)
        run(cross_entropy.cross_entropy_forward, target.shape[0] * parts, *tensors, *numbers, **options, BLOCK=_PIXELS)
    return fake


@_operator(
    "(Tensor logits, Tensor target, Tensor? class_weight, Tensor losses, Tensor peaks, Tensor log_totals, Tensor table,"
    " Tensor factor, Tensor grad, int ignore_index, float smoothing, float p, SymInt[] size, bool align_corners)"
    " -> Tensor",
    lambda logits, *_: torch.empty_like(logits),
)
def logits_gradient(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    losses: Tensor,
    peaks: Tensor,
    log_totals: Tensor,
    table: Tensor,
    factor: Tensor,
    grad: Tensor,
    ignore_index: int,
    smoothing: float,
    p: float,
    size: Sequence[int],
    align_corners: bool,
) -> Tensor:
    """Return the gradient of the pooled loss with respect to the logits, in their dtype."""
    gradient = torch.empty_like(logits)
    tensors = (logits, target, class_weight, losses, peaks, log_totals, table, factor, grad)
    options = _pixel_options(logits, class_weight, smoothing)
    # Every pixel of a batch that is pooled as one reads the only row of the table.
    per_image = int(table.shape[0] == logits.shape[0])
    last = (per_image, ignore_index, exponents(p).less_one)
    if not size:
        parts = ceil_div(target.shape[1], _PIXELS)
        numbers = (target.shape[1], parts, *logits.stride(), *gradient.stride(), *last)
        programs = target.shape[0] * parts
        run(cross_entropy.cross_entropy_backward, programs, *tensors, gradient, *numbers, **options, BLOCK=_PIXELS)
        return gradient
    images, classes, h, w = logits.shape
    corners = logits.new_empty(4, *logits.shape, dtype=torch.float32)
    parts = ceil_div(w, _GAPS)
    numbers = (*size, h, w, parts, logits.numel(), *logits.stride(), *last)
    options |= _enlargement_options(logits, size, align_corners)
    options |= {"CHUNK": _CLASSES, "GAPS": _GAPS, "STEP": min(max(power_of_two(ceil_div(size[1], w)), 2), 16)}
    programs = images * h * parts * ceil_div(classes, _CLASSES)
    run(upsampled.upsampled_backward, programs, *tensors, corners, *numbers, **options)
    numbers = (classes, h, w, logits.numel(), *gradient.stride())
    run(upsampled.merge_corners, ceil_div(logits.numel(), _CELLS), corners, gradient, *numbers, BLOCK=_CELLS)
    return gradient


def _pixel_options(logits: Tensor, class_weight: Tensor | None, smoothing: float) -> dict[str, Any]:
    classes = logits.shape[1]
    return {
        "C": classes,
        "C2": power_of_two(classes),
        "WEIGHTED": class_weight is not None,
        "SMOOTHING": smoothing,
    }


def _enlargement_options(logits: Tensor, size: Sequence[int], align_corners: bool) -> dict[str, Any]:
    """Positions are fractions of int32 numbers, or of int64 numbers for huge images."""
    products = (coarse * (2 * fine + 1) for coarse, fine in zip(logits.shape[2:], size, strict=True))
    return {"ALIGN": align_corners, "WIDE": max(products) >= _WIDE}
