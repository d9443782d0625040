"""Loss max-pooling for PyTorch: pixel losses pooled by the weights that maximise them."""

from losspool._version import __version__
from losspool.functional import cross_entropy, max_pool, pooling_weights
from losspool.modules import CrossEntropyLoss, LossMaxPooling
from losspool.stats import PoolingStats

__all__ = [
    "CrossEntropyLoss",
    "LossMaxPooling",
    "PoolingStats",
    "cross_entropy",
    "max_pool",
    "pooling_weights",
]
