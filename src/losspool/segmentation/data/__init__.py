"""Datasets behind one protocol, class indexing, and augmented crops."""

from losspool.segmentation.data.augment import Augmentation, crop
from losspool.segmentation.data.card import report_import
from losspool.segmentation.data.check_report import report_check
from losspool.segmentation.data.cityscapes import CLASSES as CITYSCAPES_CLASSES
from losspool.segmentation.data.cityscapes import LABEL_IDS as CITYSCAPES_LABEL_IDS
from losspool.segmentation.data.files import FileDataset, Pair, existing_folder, images_below, unread_files
from losspool.segmentation.data.groups import Groups
from losspool.segmentation.data.hints import known_splits, with_hint
from losspool.segmentation.data.images import SUFFIXES, Intensity, Reading, UnknownRangeError, opened, read_image
from losspool.segmentation.data.import_data import Options as ImportOptions
from losspool.segmentation.data.indexing import ClassIndex, build_index, cache_folder, class_index
from losspool.segmentation.data.labels import contiguous
from losspool.segmentation.data.layouts import in_label_folder
from losspool.segmentation.data.protocol import (
    IGNORE,
    ClassInfo,
    Dataset,
    HasLooks,
    Pixels,
    Skip,
    WarnOnce,
    check_classes,
    read_next_pair,
    read_pair,
    try_pair,
)
from losspool.segmentation.data.registry import DATASETS, DatasetKind, dataset_kind, open_dataset, splits_of
from losspool.segmentation.data.splitting import Splitting
from losspool.segmentation.data.traps import index_warnings
from losspool.segmentation.data.voc import VOC_AUGMENTED_IMAGES, prepare_voc

__all__ = [
    "CITYSCAPES_CLASSES",
    "CITYSCAPES_LABEL_IDS",
    "DATASETS",
    "IGNORE",
    "SUFFIXES",
    "VOC_AUGMENTED_IMAGES",
    "Augmentation",
    "ClassIndex",
    "ClassInfo",
    "Dataset",
    "DatasetKind",
    "FileDataset",
    "Groups",
    "HasLooks",
    "ImportOptions",
    "Intensity",
    "Pair",
    "Pixels",
    "Reading",
    "Skip",
    "Splitting",
    "UnknownRangeError",
    "WarnOnce",
    "build_index",
    "cache_folder",
    "check_classes",
    "class_index",
    "contiguous",
    "crop",
    "dataset_kind",
    "existing_folder",
    "images_below",
    "in_label_folder",
    "index_warnings",
    "known_splits",
    "open_dataset",
    "opened",
    "prepare_voc",
    "read_image",
    "read_next_pair",
    "read_pair",
    "report_check",
    "report_import",
    "splits_of",
    "try_pair",
    "unread_files",
    "with_hint",
]
