"""Runs and what they scored: variants, comparisons, statistics. Reads run folders; draws and prints nothing."""

from losspool.lab.comparison.bootstrap import Interval, joint_interval
from losspool.lab.comparison.comparison import Comparison, compare
from losspool.lab.comparison.previews import evenly, image_names, predicted_steps, read_palette, read_picture
from losspool.lab.comparison.runs import VALIDATION, Run, matching_names, read_run, run_folders
from losspool.lab.comparison.statistics import CONFIDENCE, Difference, Statistics, holm, read_statistics
from losspool.lab.comparison.variants import Variant, format_setting, labels, settings

__all__ = [
    "CONFIDENCE",
    "VALIDATION",
    "Comparison",
    "Difference",
    "Interval",
    "Run",
    "Statistics",
    "Variant",
    "compare",
    "evenly",
    "format_setting",
    "holm",
    "image_names",
    "joint_interval",
    "labels",
    "matching_names",
    "predicted_steps",
    "read_palette",
    "read_picture",
    "read_run",
    "read_statistics",
    "run_folders",
    "settings",
]
