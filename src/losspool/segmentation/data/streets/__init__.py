"""Generated street scenes: a dataset that needs no download, with a long tail and known looks."""

from losspool.segmentation.data.streets.classes import CLASSES, LOOKS, Look
from losspool.segmentation.data.streets.compose import Scene, scene
from losspool.segmentation.data.streets.dataset import SPLITS, Streets, options, splits

__all__ = ["CLASSES", "LOOKS", "SPLITS", "Look", "Scene", "Streets", "options", "scene", "splits"]
