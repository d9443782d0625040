"""How exact is exact: every bound that the tests hold the loss to, in one place."""

import torch

# Float32 losses, against the float64 reference.
VALUE = 1e-6  # relative


def weight(p: float) -> float:
    """Of a weight of a positive loss, in units of τ."""
    return 5e-4 if p <= 1.01 else 1e-5


CERTIFICATE = 1e-9  # float64: primal value against dual value, and both norms against their bounds
SOLVER = 1e-5  # against a convex solver, which ends at its own tolerance
PROCESSES = 1e-6  # several processes against one
GRADIENT = 1e-5  # float32, of the largest entry


def one_ulp(value: float, dtype: torch.dtype = torch.float32) -> float:
    x = torch.tensor(value, dtype=dtype)
    return float(torch.nextafter(x, x + torch.finfo(dtype).max) - x)
