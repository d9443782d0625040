"""Generated street scenes: a dataset without downloads, with a long-tailed class distribution and known looks."""

from losspool.segmentation.data.kinds.streets.classes import CLASSES, LOOKS
from losspool.segmentation.data.kinds.streets.compose import scene
from losspool.segmentation.data.kinds.streets.dataset import SPLITS, Streets, options, splits

__all__ = ["CLASSES", "LOOKS", "SPLITS", "Streets", "options", "scene", "splits"]
