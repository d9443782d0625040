"""Where the host may look at a tensor's values without waiting for a device."""

from __future__ import annotations

import torch
from torch import Tensor


def host_may_look(tensor: Tensor) -> bool:
    """True on the CPU, outside of ``torch.compile``.

    There work is split into cache-sized blocks, searches stop when they are done, and bad values
    raise. Everywhere else the number of operations is fixed and bad values trip an asynchronous
    assertion, so that the host runs ahead of the device.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
