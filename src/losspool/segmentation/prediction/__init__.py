"""Trained networks on whole images: prediction, scores, evaluation, weight maps, export."""

from losspool.segmentation.prediction.evaluation import (
    COUNTS,
    Spread,
    evaluate_run,
    evaluation_name,
    heading,
    look_table,
    score_table,
    write_evaluation,
)
from losspool.segmentation.prediction.export import export_run, parse_size
from losspool.segmentation.prediction.metrics import confusion, iou, iou_of_counts, mean_of_present
from losspool.segmentation.prediction.pictures import heat_image, palette_image, save_png
from losspool.segmentation.prediction.predict_images import parse_formats, predict_images
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.prediction.scoring import Scores, score
from losspool.segmentation.prediction.sources import of_files, of_split, with_labels
from losspool.segmentation.prediction.trained_run import Trained, changed, load_one, run_folder
from losspool.segmentation.prediction.weight_maps import Weigher, WeightMap, weigher_of, weight_table, weight_words

__all__ = [
    "COUNTS",
    "Predictor",
    "Scores",
    "Spread",
    "Trained",
    "Weigher",
    "WeightMap",
    "changed",
    "confusion",
    "evaluate_run",
    "evaluation_name",
    "export_run",
    "heading",
    "heat_image",
    "iou",
    "iou_of_counts",
    "load_one",
    "look_table",
    "mean_of_present",
    "of_files",
    "of_split",
    "palette_image",
    "parse_formats",
    "parse_size",
    "predict_images",
    "run_folder",
    "save_png",
    "score",
    "score_table",
    "weigher_of",
    "weight_table",
    "weight_words",
    "with_labels",
    "write_evaluation",
]
