"""What a tensor's device allows: reading values without waiting, float64, products in full precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor


def host_may_look(tensor: Tensor) -> bool:
    """True on the CPU, outside of ``torch.compile``, for a tensor that has values.

    On the CPU, work is split into cache-sized blocks, searches stop as soon as they converge, and
    bad values raise. Elsewhere the number of operations is fixed and bad values trip an
    asynchronous assertion, so that the host can run ahead of the device.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not is_symbolic(tensor)


def is_symbolic(*tensors: Tensor | None) -> bool:
    """Whether a tensor stands for others: in a transform of ``torch.func``, a ``FakeTensorMode`` or ``torch.export``.

    Autograd functions with a context cannot run there, and kernels cannot be launched.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return any(each is not None and (hasattr(each, "fake_mode") or is_wrapped(each)) for each in tensors)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` follows this tensor."""
    return not torch.compiler.is_compiling() and torch.func.debug_unwrap(tensor) is not tensor


def has_float64(tensor: Tensor) -> bool:
    """Whether the tensor's device can compute in float64. Apple's cannot, and some of Intel's cannot."""
    return tensor.device.type != "mps" and (tensor.device.type != "xpu" or _xpu_has_float64(tensor.device))


@cache
def _xpu_has_float64(device: torch.device) -> bool:
    return bool(torch.xpu.get_device_properties(device).has_fp64)


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off: it would multiply float32 matrices in half precision."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def wide_dtype(losses: Tensor) -> torch.dtype:
    """The dtype of a pool's results: float64 wherever there is one."""
    return torch.float64 if losses.dtype == torch.float64 or has_float64(losses) else torch.float32
