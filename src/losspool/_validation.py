"""Argument checks for the public functions. Every message includes the received value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from losspool import kernels
from losspool.solver import host
from losspool.solver.threads import spread
from losspool.stats import PoolingStats

SCOPES = ("image", "batch", "global")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMMON_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LARGE = 2**62  # exceeds any pixel count; as an exponent, effectively infinite


def check_p(p: Any) -> float:
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise TypeError(f"p must be a number from 1 to math.inf, got {p!r} of type {type(p).__name__}")
    if not p >= 1:  # NaN too
        raise ValueError(f"p must be at least 1 (math.inf is allowed), got {p!r}")
    return float(min(p, _LARGE)) if isinstance(p, int) else p


def check_m(m: Any) -> tuple[float, bool]:
    """Return m as a float, and whether it is a fraction of the pixels."""
    if isinstance(m, bool) or not isinstance(m, int | float):
        raise TypeError(
            f"m must be a float in (0, 1] (a fraction of the pixels) or an int >= 1 (a number of pixels), "
            f"got {m!r} of type {type(m).__name__}"
        )
    share = isinstance(m, float)
    if share and not 0 < m <= 1:
        raise ValueError(f"m as a float is a fraction of the pixels in (0, 1], got {m!r}; pass a count as an int")
    if not share and m < 1:
        raise ValueError(f"m as an int is a number of pixels and must be at least 1, got {m!r}")
    return float(m if share else min(m, _LARGE)), share


def check_scope_name(scope: Any) -> None:
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(map(repr, SCOPES))}, got {scope!r}")


def check_scope(scope: Any, pixel_dims: int, shape: torch.Size, what: str) -> None:
    check_scope_name(scope)
    if scope == "image" and pixel_dims < 1:
        raise ValueError(
            f'scope="image" pools the pixels of each image, but {what} of shape {tuple(shape)} has no pixel axes; '
            f'use scope="batch" to pool over the batch'
        )


def check_losses(losses: Any, mask: Any) -> None:
    if not isinstance(losses, Tensor):
        raise TypeError(f"losses must be a tensor, got {type(losses).__name__}")
    if losses.dtype not in FLOATS:
        raise TypeError(f"losses must have a floating-point dtype of 16 to 64 bits, got {losses.dtype}")
    if losses.ndim == 0:
        raise ValueError("losses must have at least one dimension, got a scalar tensor")
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a tensor of dtype torch.bool (True where a pixel counts), got {got}")
    if mask.shape != losses.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, but losses have shape {tuple(losses.shape)}")
    _check_device(mask, "mask", losses, "losses")


def check_non_negative(losses: Tensor, what: str) -> None:
    """Raise on the CPU; elsewhere assert asynchronously, because reading values would make the host wait."""
    if losses.numel() == 0:
        return
    if not host.host_may_look(losses):
        torch._assert_async((~(losses < 0)).all(), f"losspool: {what} must not be negative")
        return
    lowest = spread(lambda: lambda block: float(block.amin()), losses.detach().flatten().split(1 << 17), losses.numel())
    if not all(low >= 0 for low in lowest):  # NaN too, which itself passes: it shows in the result
        negative = losses[losses < 0]
        if negative.numel():
            raise ValueError(f"{what} must not be negative, got {float(negative[0])!r}")


def check_logits(input: Any, target: Any) -> None:
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if input.dtype not in FLOATS:
        raise TypeError(f"input must hold logits of a floating-point dtype of 16 to 64 bits, got {input.dtype}")
    if input.ndim < 2:
        raise ValueError(f"input must have shape (B, C, ...), got {tuple(input.shape)}")
    if target.is_floating_point():
        raise TypeError(
            f"target must hold class indices, got {target.dtype}; class-probability targets are not supported"
        )
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold class indices of an integer dtype, got {target.dtype}")
    if input.shape[1] == 0:
        raise ValueError(f"input must have at least one class, got shape {tuple(input.shape)}")
    _check_device(target, "target", input, "input")


def check_target_shape(input: Tensor, target: Tensor) -> None:
    expected = (input.shape[0], *input.shape[2:])
    if tuple(target.shape) != expected:
        raise ValueError(
            f"target must have shape {expected} for an input of shape {tuple(input.shape)}, got {tuple(target.shape)}"
        )


def check_enlargement(input: Tensor, target: Tensor, align_corners: Any) -> None:
    if input.ndim != 4 or target.ndim != 3 or input.shape[0] != target.shape[0]:
        raise ValueError(
            f"input must have shape (B, C, h, w) and target (B, H, W), "
            f"got {tuple(input.shape)} and {tuple(target.shape)}"
        )
    for name, coarse, fine in (("high", input.shape[2], target.shape[1]), ("wide", input.shape[3], target.shape[2])):
        if not 1 <= coarse <= fine:
            raise ValueError(
                f"logits can only be upsampled: input of shape {tuple(input.shape)} is {coarse} {name}, "
                f"target of shape {tuple(target.shape)} is {fine}"
            )
    check_align_corners(align_corners)


def check_align_corners(align_corners: Any) -> None:
    if not isinstance(align_corners, bool):
        raise TypeError(f"align_corners must be a bool, got {align_corners!r} of type {type(align_corners).__name__}")


def check_options(
    weight: Any, ignore_index: Any, label_smoothing: Any, input: Tensor, target: Tensor, stats: Any, shared: bool
) -> None:
    """Check what all losses from logits take. ``shared``: other processes must learn of an error before they wait."""
    check_ignore_index(ignore_index)
    check_smoothing(label_smoothing)
    check_stats(stats)
    classes = input.shape[1]
    if weight is not None:
        check_class_weight(weight, values=not kernels.usable(input))
        if weight.shape != (classes,):
            raise ValueError(f"weight must have shape ({classes},), one entry per class, got {tuple(weight.shape)}")
        _check_device(weight, "weight", input, "input")
    # The kernels check labels and class weights by themselves. On the CPU, picking the logits of bad labels raises,
    # and the labels are only looked at for the message.
    if not kernels.usable(input) and (shared or not host.host_may_look(target)):
        check_labels(target, classes, ignore_index)


def check_ignore_index(ignore_index: Any) -> None:
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an int, got {ignore_index!r} of type {type(ignore_index).__name__}")
    if not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"ignore_index must fit in a 64-bit integer, got {ignore_index!r}")


def check_stats(stats: Any) -> None:
    if stats is not None and not isinstance(stats, PoolingStats):
        got = stats.__name__ if isinstance(stats, type) else type(stats).__name__
        raise TypeError(f"stats must be an instance of losspool.PoolingStats, got {got}")


def check_smoothing(label_smoothing: Any) -> None:
    if isinstance(label_smoothing, bool) or not isinstance(label_smoothing, int | float):
        raise TypeError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing!r}")


def check_class_weight(weight: Any, *, values: bool = True) -> None:
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight must be a floating-point tensor, got {got}")
    if weight.ndim != 1:
        raise ValueError(f"weight must have one dimension, one entry per class, got {tuple(weight.shape)}")
    if weight.requires_grad:
        raise ValueError("weight requires grad, but this loss treats class weights as constants; pass weight.detach()")
    if not values:
        return
    check_non_negative(weight, "class weights")
    if host.host_may_look(weight) and not bool(weight.isfinite().all()):
        raise ValueError(f"class weights must be finite, got {float(weight[~weight.isfinite()][0])!r}")


def check_labels(target: Tensor, classes: int, ignore_index: int) -> None:
    """Check that every label is a class or ``ignore_index``; raise or assert as ``check_non_negative`` does."""
    if target.numel() == 0:
        return
    if not host.host_may_look(target):
        target = target.long()
        valid = (target == ignore_index) | (target == target.clamp(0, classes - 1))
        torch._assert_async(valid.all(), f"losspool: target has labels outside [0, {classes}) other than ignore_index")
        return
    if target.dtype not in _COMMON_INTEGERS:
        target = target.long()  # torch has few operators for the others
    low, high = (int(bound) for bound in target.aminmax())
    if low >= 0 and high < classes:
        return
    info = torch.iinfo(target.dtype)
    if info.min <= ignore_index <= info.max:
        low, high = (int(bound) for bound in target.masked_fill(target == ignore_index, 0).aminmax())
        if low >= 0 and high < classes:
            return
    target = target.long()
    bad = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
    hint = "; did you mean ignore_index=255?" if bool((bad == 255).any()) else ""
    raise ValueError(
        f"target holds the label {int(bad[0])}, but there are {classes} classes "
        f"(0 to {classes - 1}) and ignore_index is {ignore_index}{hint}"
    )


def _check_device(tensor: Tensor, name: str, other: Tensor, other_name: str) -> None:
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device}, but {other_name} is on {other.device}")
