"""The loss in Triton, for CUDA and ROCm devices: see docs/kernels.md.

Importing this package imports neither Triton nor a kernel. ``usable`` does so the first time that
it returns True; ``losspool.kernels.operators`` can be imported from then on.
"""

import os

import torch
from torch import Tensor

# Triton 3.7.1 comes with the CUDA builds of torch 2.13. The kernels are built and tested with it and with 3.9.
_OLDEST_TRITON = (3, 7)
_OLDEST_CUDA = (8, 0)  # Ampere
_OLDEST_ROCM = (9, 4)  # gfx942
_ROCM_FAMILY = 9  # CDNA. The kernels were never built for RDNA, whose cards have higher numbers.
_SWITCH = ("0", "1", "interpret")


def usable(tensor: Tensor) -> bool:
    """Whether the kernels compute the loss of this tensor; otherwise plain tensor operations do."""
    if tensor.dtype == torch.float64:
        return False
    if torch.compiler.is_compiling():
        from losspool.kernels import traced

        return traced.device_usable(tensor.device)
    return device_usable(tensor.device)


def device_usable(device: torch.device) -> bool:
    return unusable(device) is None


def unusable(device: torch.device) -> str | None:
    """Why the kernels do not compute the loss on this device; None if they do.

    ``LOSSPOOL_KERNELS=0`` switches the kernels off; ``interpret`` runs them on CPU tensors, for tests.
    """
    switch = os.environ.get("LOSSPOOL_KERNELS") or "1"
    if switch not in _SWITCH:
        raise ValueError(f"the environment variable LOSSPOOL_KERNELS must be 0, 1 or interpret, got {switch!r}")
    if device.type == "cpu":
        if switch != "interpret":
            return "plain tensor operations compute the loss on CPUs"
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError("LOSSPOOL_KERNELS=interpret needs the environment variable TRITON_INTERPRET=1")
    elif device.type != "cuda":
        return f"there are none for {device.type} devices"
    elif switch == "0":
        return "LOSSPOOL_KERNELS=0 switches them off"
    elif fault := _card_fault(torch.cuda.get_device_capability(device)):
        return fault
    return _triton_fault()


def _card_fault(found: tuple[int, int]) -> str | None:
    rocm = torch.version.hip is not None
    oldest = _OLDEST_ROCM if rocm else _OLDEST_CUDA
    if found < oldest:
        return f"the device has compute capability {_dotted(found)}, and {_dotted(oldest)} is needed"
    if rocm and found[0] != _ROCM_FAMILY:
        return f"the device has compute capability {_dotted(found)}, and AMD's must be 9.x"
    return None


def _triton_fault() -> str | None:
    try:
        import triton
    except ImportError:
        return "Triton is not installed"
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < _OLDEST_TRITON:
        return f"Triton is version {triton.__version__}, and {_dotted(_OLDEST_TRITON)} is needed"
    import losspool.kernels.operators  # noqa: F401

    return None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


__all__ = ["unusable", "usable"]
