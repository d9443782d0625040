"""Whether the host can read a tensor's values without waiting for a device."""

from __future__ import annotations

import torch
from torch import Tensor


def host_may_look(tensor: Tensor) -> bool:
    """True on the CPU, outside of ``torch.compile``.

    On the CPU, work is split into cache-sized blocks, searches stop as soon as they converge, and
    bad values raise. Elsewhere the number of operations is fixed and bad values trip an
    asynchronous assertion, so that the host can run ahead of the device.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def has_float64(tensor: Tensor) -> bool:
    """Whether the tensor's device can compute in float64."""
    return tensor.device.type != "mps"


def wide_dtype(losses: Tensor) -> torch.dtype:
    """The dtype of a pool's results: float64 wherever there is one."""
    return torch.float64 if losses.dtype == torch.float64 or has_float64(losses) else torch.float32
