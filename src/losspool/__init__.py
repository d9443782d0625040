"""Loss max-pooling for PyTorch: weight pixel losses by the weights that maximise their sum."""

from losspool._version import __version__ as __version__
from losspool.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    pooling_weights,
    upsampled_cross_entropy,
)
from losspool.modules import BCEWithLogitsLoss, CrossEntropyLoss, LossMaxPooling, UpsampledCrossEntropyLoss
from losspool.stats import PoolingStats

__all__ = [
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "LossMaxPooling",
    "PoolingStats",
    "UpsampledCrossEntropyLoss",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "max_pool",
    "pooling_weights",
    "upsampled_cross_entropy",
]
