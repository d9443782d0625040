"""Whether the host can read a tensor's values without waiting for a device."""

from __future__ import annotations

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
        return _EXPORTING()
    return any(each is not None and (hasattr(each, "fake_mode") or is_wrapped(each)) for each in tensors)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` follows this tensor."""
    return not torch.compiler.is_compiling() and _UNWRAP(tensor) is not tensor


# Older versions of torch do not say.
_EXPORTING = getattr(torch.compiler, "is_exporting", lambda: False)
_UNWRAP = getattr(torch.func, "debug_unwrap", lambda tensor: tensor)


def has_float64(tensor: Tensor) -> bool:
    """Whether the tensor's device can compute in float64."""
    return tensor.device.type != "mps"


def wide_dtype(losses: Tensor) -> torch.dtype:
    """The dtype of a pool's results: float64 wherever there is one."""
    return torch.float64 if losses.dtype == torch.float64 or has_float64(losses) else torch.float32
