"""The dataset protocol, and reading an image together with its label."""

from losspool.segmentation.data.protocol.dataset import (
    IGNORE,
    ClassInfo,
    Dataset,
    HasFiles,
    HasLooks,
    Pixels,
    check_classes,
)
from losspool.segmentation.data.protocol.pairs import Skip, WarnOnce, read_next_pair, read_pair, try_pair

__all__ = [
    "IGNORE",
    "ClassInfo",
    "Dataset",
    "HasFiles",
    "HasLooks",
    "Pixels",
    "Skip",
    "WarnOnce",
    "check_classes",
    "read_next_pair",
    "read_pair",
    "try_pair",
]
