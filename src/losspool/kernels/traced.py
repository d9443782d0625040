"""``usable`` for code that torch.compile traces: the answer is a constant of the graph.

Only traced code imports this, because the decorator imports the compiler, which takes a second.
"""

import torch

from losspool import kernels


@torch.compiler.assume_constant_result
def device_usable(device: torch.device) -> bool:
    return kernels.device_usable(device)
