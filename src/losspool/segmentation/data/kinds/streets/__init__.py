"""Generated street scenes: a dataset without downloads, with a long-tailed class distribution and known looks."""

from losspool.segmentation.data.kinds.streets.classes import CLASSES, LOOKS, Look
from losspool.segmentation.data.kinds.streets.compose import Scene, scene
from losspool.segmentation.data.kinds.streets.dataset import SPLITS, Streets, options, splits

__all__ = ["CLASSES", "LOOKS", "SPLITS", "Look", "Scene", "Streets", "options", "scene", "splits"]
