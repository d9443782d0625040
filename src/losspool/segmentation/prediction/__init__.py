"""Inference with trained networks on whole images: prediction, evaluation, weight maps and export."""

from losspool.segmentation.prediction.evaluation import COUNTS, REGION_COUNTS, Spread, evaluation_name
from losspool.segmentation.prediction.evaluation_report import report_evaluation
from losspool.segmentation.prediction.export import report_export
from losspool.segmentation.prediction.metrics import (
    METRICS,
    class_metrics,
    confusion,
    iou,
    iou_of_counts,
    mean_of_present,
    mean_without_nan,
    none_if_nan,
    ratio,
    shares_of_labels,
)
from losspool.segmentation.prediction.pictures import WEIGHT_UNIT, heat_image, palette_image, save_png, void_color
from losspool.segmentation.prediction.predict_images import predict_run
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.prediction.regions import BOUNDARY_RATIO, INTERIOR_MARGIN
from losspool.segmentation.prediction.scoring import Scores, score
from losspool.segmentation.prediction.sources import sources_of_split
from losspool.segmentation.prediction.trained_run import Trained, TrainedRun, with_overrides
from losspool.segmentation.prediction.weight_maps import Weigher, WeightMap

__all__ = [
    "BOUNDARY_RATIO",
    "COUNTS",
    "INTERIOR_MARGIN",
    "METRICS",
    "REGION_COUNTS",
    "WEIGHT_UNIT",
    "Predictor",
    "Scores",
    "Spread",
    "Trained",
    "TrainedRun",
    "Weigher",
    "WeightMap",
    "class_metrics",
    "confusion",
    "evaluation_name",
    "heat_image",
    "iou",
    "iou_of_counts",
    "mean_of_present",
    "mean_without_nan",
    "none_if_nan",
    "palette_image",
    "predict_run",
    "ratio",
    "report_evaluation",
    "report_export",
    "save_png",
    "score",
    "shares_of_labels",
    "sources_of_split",
    "void_color",
    "with_overrides",
]
