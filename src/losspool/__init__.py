"""Loss max-pooling for PyTorch: weight pixel losses by the weights that maximise their sum."""

from losspool._version import __version__ as __version__
from losspool.functional import cross_entropy, max_pool, pooling_weights, upsampled_cross_entropy
from losspool.modules import CrossEntropyLoss, LossMaxPooling, UpsampledCrossEntropyLoss
from losspool.stats import PoolingStats

__all__ = [
    "CrossEntropyLoss",
    "LossMaxPooling",
    "PoolingStats",
    "UpsampledCrossEntropyLoss",
    "cross_entropy",
    "max_pool",
    "pooling_weights",
    "upsampled_cross_entropy",
]
