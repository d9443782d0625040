"""Argument checks for the public functions. Every message includes the received value."""

from __future__ import annotations

import functools
import inspect
import numbers
import re
import warnings
from collections.abc import Callable, Mapping, Set
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor

from losspool.solver import host
from losspool.solver.threads import spread
from losspool.stats import PoolingStats

Scope = Literal["image", "batch", "global"]
Reduction = Literal["mean", "pool"]
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGE = 2**62  # exceeds any pixel count; as an exponent, effectively infinite
NO_VOID = -(2**63)
"""What ``ignore_index=None`` becomes: not a label."""
_WITH_UNIT = re.compile(r"\s*((?P<percent>[0-9]+\.?[0-9]*|\.[0-9]+)\s*%|(?P<pixels>[0-9]{1,18})\s*px)\s*")

P = ParamSpec("P")
R = TypeVar("R")


def refuse_deprecated(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse torch's deprecated arguments by name. Their default, None, is not an argument."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in ("size_average", "reduce"):
            if kwargs.pop(name, None) is not None:
                raise TypeError(f'{name} is deprecated in torch and not supported here; use reduction="mean" or "pool"')
        return function(*args, **kwargs)

    return wrapper


def refuse_script(*_: Any) -> NoReturn:
    raise TypeError(
        "torch.jit.script cannot compile losspool; script the network alone and call the loss outside of it, or use "
        "torch.compile"
    )


def unscriptable(function: Callable[P, R]) -> Callable[P, R]:
    """Let ``torch.jit.script`` raise :func:`refuse_script`, in place of an error about our source code."""
    function.__prepare_scriptable__ = refuse_script  # type: ignore[attr-defined]
    return function


def is_number(value: Any, kind: type = numbers.Real) -> bool:
    """Numpy's numbers too."""
    return isinstance(value, kind) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, which are constants for torch.compile."""
    return value.item() if is_number(value) and hasattr(value, "item") else value


def wrong_type(name: str, value: Any, wanted: str, hint: str = "") -> TypeError:
    """An error with the value received. Inside ``torch.compile`` arrays have none, and numpy's numbers are arrays."""
    kind = type(value).__name__
    if torch.compiler.is_compiling() and (isinstance(value, Tensor) or kind == "ndarray"):
        return TypeError(
            f"{name} must be a Python number inside torch.compile, which makes arrays of NumPy scalars, got {kind}; "
            f"pass {name}.item() to the compiled function, or set {name} in a module outside of it"
        )
    return TypeError(f"{name} must be {wanted}, got {value!r} of type {kind}{hint}")


def check_p(p: Any) -> float:
    if not is_number(p):
        raise wrong_type("p", p, "a number from 1 to math.inf")
    if not p >= 1:  # NaN too
        raise ValueError(f"p must be at least 1 (math.inf is allowed), got {p!r}")
    return float(min(p, _LARGE)) if isinstance(p, int) else float(p)


def check_m(m: Any) -> tuple[float, bool]:
    """Return m as a float, and whether it is a fraction of the pixels."""
    value: Any = parse_units(m) if isinstance(m, str) else m
    if not is_number(value):
        wanted = (
            "a float in (0, 1] or a string such as '25%' (a fraction of the pixels), or an int >= 1 or a string such "
            "as '1000px' (a number of pixels)"
        )
        raise wrong_type("m", m, wanted)
    share = not is_number(value, numbers.Integral)
    if isinstance(m, str) and not (0 < value <= 1 if share else value >= 1):
        raise ValueError(f"m must be more than 0% and at most 100%, or at least 1px, got {m!r}")
    if share and not 0 < value <= 1:
        raise ValueError(f"m as a float is a fraction of the pixels in (0, 1], got {m!r}; pass a count as an int")
    if not share and value < 1:
        raise ValueError(f"m as an int is a number of pixels and must be at least 1, got {m!r}")
    if not share and m == 1 and not torch.compiler.is_compiling():
        _warn_of_one_pixel()
    return float(value if share else min(value, _LARGE)), share


def parse_units(text: str) -> float | int | None:
    """Return a share for ``"25%"``, a number of pixels for ``"1000px"``, and None for any other text."""
    written = _WITH_UNIT.fullmatch(text)
    if written is None:
        return None
    return int(written["pixels"]) if written["pixels"] else float(written["percent"]) / 100


@functools.cache
def _warn_of_one_pixel() -> None:
    """Once: a training makes this call at every step."""
    warnings.warn(
        'm=1 is one pixel: the weight may concentrate on a single one. Pass m=1.0 for all pixels, or m="1px" '
        "if one pixel is what you mean.",
        stacklevel=_levels_to_caller(),
    )


def _levels_to_caller() -> int:
    """The ``stacklevel`` of a warning in the function that calls this, so that it names the user's own line."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("losspool", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def check_trim(trim: Any) -> float:
    value: Any = parse_units(trim) if isinstance(trim, str) and "%" in trim else trim
    if not is_number(value):
        raise wrong_type("trim", trim, "a number in [0, 1) or a string such as '5%'")
    if not 0 <= value < 1:
        raise ValueError(f"trim is a share of the pixels and must be in [0, 1), got {trim!r}")
    return float(value)


def check_reduction(reduction: Any) -> None:
    if reduction in get_args(Reduction):
        return
    hints = {
        "none": "; a pixel's own value is stats.weights times its loss",
        "sum": '; for a sum over pools, add up those of reduction="pool"',
    }
    hint = hints.get(reduction, "") if isinstance(reduction, str) else ""
    raise ValueError(f'reduction must be "mean" or "pool" (one value per pool), got {reduction!r}{hint}')


def check_pooling(p: Any, m: Any, scope: Any, reduction: Any, trim: Any) -> None:
    """Check the settings of a module when it is made."""
    check_reduction(reduction)
    check_p(p)
    check_m(m)
    check_scope_name(scope)
    check_trim(trim)


def check_transforms(shared: bool, stats: Any, *tensors: Any) -> None:
    """Refuse what tracers and transforms cannot follow."""
    tensors = tuple(each for each in tensors if isinstance(each, Tensor))
    if shared and host.is_symbolic(*tensors):
        raise ValueError(
            'scope="global" exchanges values between processes, which torch.func, torch.export and fake tensors '
            'cannot follow; use scope="batch" or "image"'
        )
    if stats is not None and any(host.is_wrapped(each) for each in tensors):
        raise ValueError("stats cannot leave a transform of torch.func; pass stats in a call outside of it")


def check_scope_name(scope: Any) -> None:
    scopes = get_args(Scope)
    if scope not in scopes:
        raise ValueError(f"scope must be one of {', '.join(map(repr, scopes))}, got {scope!r}")


def check_scope(scope: Any, pixel_dims: int, shape: torch.Size, what: str) -> None:
    check_scope_name(scope)
    if scope == "image" and pixel_dims < 1:
        raise ValueError(
            f'scope="image" pools the pixels of each image, but there are none in {what} of shape '
            f'{tuple(shape)}; use scope="batch" to pool over the batch'
        )


def check_tensor(value: Any, name: str) -> None:
    """Refuse what networks return in place of a tensor, with a hint."""
    if isinstance(value, Tensor):
        return
    hint = ""
    if isinstance(value, Mapping) and value:
        hint = f"; index it, such as {name}[{next(iter(value))!r}]"
    elif isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
        hint = f"; index it, such as {name}[0]"
    elif hasattr(value, "__array__"):
        hint = f"; convert it: torch.from_numpy({name})"
    raise TypeError(f"{name} must be a tensor, got {type(value).__name__}{hint}")


def check_losses(losses: Any) -> None:
    check_tensor(losses, "losses")
    if losses.dtype not in FLOATS:
        raise TypeError(f"losses must have a floating-point dtype of 16 to 64 bits, got {losses.dtype}")
    if losses.ndim == 0:
        raise ValueError("losses must have at least one dimension, got a scalar tensor")


def read_mask(mask: Any, values: Tensor, what: str) -> Tensor | None:
    """Return the mask in the shape of ``values``."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a tensor of dtype torch.bool (True where a pixel counts), got {got}")
    check_device(mask, "mask", values, what)
    images, *rest = values.shape
    if mask.ndim == values.ndim - 1 > 1 and 1 < images == rest[0] == mask.shape[0]:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} may belong to the images or to the channels of {what} of shape "
            f"{tuple(values.shape)}; use mask.unsqueeze(1) for one entry per pixel of each image, or "
            f"mask.unsqueeze(0) for the same entries in all images"
        )
    return broadcast(mask, "mask", values, what)


def broadcast(tensor: Tensor, name: str, values: Tensor, what: str) -> Tensor:
    try:
        return tensor.expand(values.shape)
    except RuntimeError:
        per_label = values.ndim > 2 and tuple(tensor.shape) == (values.shape[1],)
        hint = f"; for one entry per label use {name}.view(-1{', 1' * (values.ndim - 2)})" if per_label else ""
        if values.ndim > 2 and tensor.shape == (values.shape[0], *values.shape[2:]):
            hint = f"; for one entry per pixel use {name}.unsqueeze(1)"
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, which does not broadcast to {what} of shape "
            f"{tuple(values.shape)}{hint}"
        ) from None


def check_non_negative(losses: Tensor, what: str) -> Tensor | None:
    """Raise on the CPU; elsewhere :func:`assert_later`, because reading values would make the host wait."""
    if losses.numel() == 0:
        return None
    if not host.host_may_look(losses):
        return assert_later((~(losses < 0)).all(), f"losspool: {what} must not be negative")
    lowest = spread(lambda: lambda block: float(block.amin()), losses.detach().flatten().split(1 << 17), losses.numel())
    if not all(low >= 0 for low in lowest):  # NaN too, which itself passes: it shows in the result
        negative = losses[losses < 0]
        if negative.numel():
            raise ValueError(f"{what} must not be negative, got {float(negative[0])!r}")
    return None


def assert_later(condition: Tensor, message: str) -> Tensor | None:
    """Assert without reading the value. Transforms of torch.func have no assertions: there, return the condition."""
    if host.is_wrapped(condition):
        return condition
    torch._assert_async(condition, message)
    return None


def nan_unless(loss: Tensor, *sound: Tensor | None) -> Tensor:
    """Make a loss and its gradient NaN where a condition of :func:`assert_later` is False."""
    for condition in sound:
        if condition is not None:
            loss = loss * torch.where(condition, 1.0, torch.nan).to(loss.dtype)
    return loss


def check_align_corners(align_corners: Any) -> None:
    if not isinstance(align_corners, bool):
        raise TypeError(f"align_corners must be a bool, got {align_corners!r} of type {type(align_corners).__name__}")


def check_ignore_index(ignore_index: Any) -> None:
    if ignore_index is None:
        return
    if not is_number(ignore_index, numbers.Integral):
        raise wrong_type("ignore_index", ignore_index, "an int", "; None means that no pixel is void")
    if not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"ignore_index must fit in a 64-bit integer, got {ignore_index!r}")


def check_stats(stats: Any) -> None:
    if stats is not None and not isinstance(stats, PoolingStats):
        got = stats.__name__ if isinstance(stats, type) else type(stats).__name__
        raise TypeError(f"stats must be an instance of losspool.PoolingStats, got {got}")


def check_smoothing(label_smoothing: Any) -> None:
    if not is_number(label_smoothing):
        raise wrong_type("label_smoothing", label_smoothing, "a number in [0, 1]")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing!r}")


def read_class_weight(weight: Any, input: Tensor, *, values: bool) -> tuple[Tensor | None, Tensor | None]:
    """Return the class weights of one call as a tensor on the device of ``input``.

    ``values``: check that they are not negative. In a transform of torch.func, also return whether they are sound.
    """
    if weight is None:
        return None, None
    if isinstance(weight, Tensor):
        check_device(weight, "weight", input, "input", module=True)
    tensor = check_class_weight(weight, values=False)
    classes = input.shape[1]
    if tensor.shape != (classes,):
        raise ValueError(f"weight must have shape ({classes},), one entry per class, got {tuple(tensor.shape)}")
    return tensor.to(input.device), check_weight_values(tensor, "class weights") if values else None


def check_class_weight(weight: Any, *, values: bool = True) -> Tensor:
    tensor = read_weight(weight, "weight", "class weights")
    if tensor.ndim != 1:
        raise ValueError(f"weight must have one dimension, one entry per class, got {tuple(tensor.shape)}")
    if values:
        check_weight_values(tensor, "class weights")
    return tensor


def read_scale(value: Any, name: str, input: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return factors of binary losses, broadcastable to ``input``, on its device and in its working precision.

    In a transform of torch.func, also whether they are sound.
    """
    if value is None:
        return None, None
    if isinstance(value, Tensor):
        check_device(value, name, input, "input", module=True)
    tensor = read_weight(value, name, name)
    sound = check_weight_values(tensor, name)
    broadcast(tensor, name, input, "input")
    return tensor.to(input.device, torch.float64 if input.dtype == torch.float64 else torch.float32), sound


def check_scale(value: Any, name: str) -> Tensor:
    tensor = read_weight(value, name, name)
    check_weight_values(tensor, name)
    return tensor


def check_weight_values(weight: Tensor, what: str) -> Tensor | None:
    """As :func:`check_non_negative`; and on the CPU, weights must be finite."""
    sound = check_non_negative(weight, what)
    if host.host_may_look(weight) and not bool(weight.isfinite().all()):
        raise ValueError(f"{what} must be finite, got {float(weight[~weight.isfinite()][0])!r}")
    return sound


def read_weight(weight: Any, name: str, what: str) -> Tensor:
    """Return a tensor, or a list of numbers as one."""
    if isinstance(weight, Mapping | Set | str):  # their order, or their items, are not those of the classes
        raise TypeError(f"{name} must be a floating-point tensor or a list of numbers in order, got {weight!r}")
    if not isinstance(weight, Tensor):
        try:
            weight = torch.tensor(float(weight) if is_number(weight) else [_number(each) for each in weight])
        except (TypeError, ValueError):
            got = f"{weight!r} of type {type(weight).__name__}"
            raise TypeError(f"{name} must be a floating-point tensor or a list of numbers, got {got}") from None
    if not weight.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {weight.dtype}; pass {name}.float()")
    if weight.requires_grad:
        raise ValueError(f"{name} requires grad, but this loss treats {what} as constants; pass {name}.detach()")
    return weight


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def check_device(tensor: Tensor, name: str, other: Tensor, other_name: str, module: bool = False) -> None:
    """``module``: it may belong to a module, which then moves it."""
    if tensor.device != other.device:
        to = f'.to("{other.device}")'
        hint = f"{name}{to}, or the module that holds it: criterion{to}" if module else f"{name}{to}"
        raise ValueError(f"{name} is on {tensor.device}, but {other_name} is on {other.device}; move it: {hint}")
