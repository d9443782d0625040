"""The autograd functions behind ``losspool.functional``. They do not validate their arguments."""

from losspool.ops.cross_entropy import Enlargement, kernels_read, pooled_cross_entropy
from losspool.ops.logits import enlarged_strips, interpolated, working_dtype
from losspool.ops.pixel_losses import PixelLoss
from losspool.ops.pooling import PoolLosses, Setting, pooled_losses

__all__ = [
    "Enlargement",
    "PixelLoss",
    "PoolLosses",
    "Setting",
    "enlarged_strips",
    "interpolated",
    "kernels_read",
    "pooled_cross_entropy",
    "pooled_losses",
    "working_dtype",
]
