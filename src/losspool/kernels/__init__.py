"""The loss in Triton, for CUDA and ROCm devices: see docs/kernels.md.

Importing this package imports neither Triton nor a kernel. ``usable`` does so the first time that
it says yes; ``losspool.kernels.operators`` can be imported from then on.
"""

import os

import torch
from torch import Tensor

# Triton 3.7.1 comes with the CUDA builds of torch 2.13. The kernels are built and tested with it and with 3.9.
_OLDEST_TRITON = (3, 7)
_OLDEST_CUDA = (8, 0)  # Ampere
_OLDEST_ROCM = (9, 4)  # gfx942


def usable(tensor: Tensor) -> bool:
    """Whether the kernels compute the loss of this tensor; otherwise plain tensor operations do."""
    if tensor.dtype == torch.float64:
        return False
    if torch.compiler.is_compiling():
        from losspool.kernels import traced

        return traced.device_usable(tensor.device)
    return device_usable(tensor.device)


def device_usable(device: torch.device) -> bool:
    """``LOSSPOOL_KERNELS=0`` switches the kernels off; ``interpret`` runs them on CPU tensors, for tests."""
    switch = os.environ.get("LOSSPOOL_KERNELS", "1")
    if device.type == "cpu":
        wanted = switch == "interpret" and os.environ.get("TRITON_INTERPRET") == "1"
    else:
        wanted = switch != "0" and device.type == "cuda" and _supported(device)
    return wanted and _triton_works()


def _supported(device: torch.device) -> bool:
    oldest = _OLDEST_CUDA if torch.version.hip is None else _OLDEST_ROCM
    return torch.cuda.get_device_capability(device) >= oldest


def _triton_works() -> bool:
    try:
        import triton
    except ImportError:
        return False
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < _OLDEST_TRITON:
        return False
    import losspool.kernels.operators  # noqa: F401

    return True


__all__ = ["usable"]
