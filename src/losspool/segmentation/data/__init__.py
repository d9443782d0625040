"""Datasets behind one protocol, class indexing, and augmented crops."""

from losspool.segmentation.data.checking.report import report_check
from losspool.segmentation.data.checking.traps import index_warnings
from losspool.segmentation.data.crops.augment import Augmentation, crop
from losspool.segmentation.data.crops.indexing import ClassIndex, build_index, cache_folder, class_index
from losspool.segmentation.data.files.faults import report_lines
from losspool.segmentation.data.files.file_dataset import FileDataset, Pair, existing_folder, images_below, unread_files
from losspool.segmentation.data.files.groups import Groups, HasGroups, groups_of
from losspool.segmentation.data.files.images import (
    SUFFIXES,
    HasReading,
    Intensity,
    Reading,
    UnknownRangeError,
    open_image,
    read_image,
)
from losspool.segmentation.data.files.labels import contiguous
from losspool.segmentation.data.importing.hints import check_root, known_splits
from losspool.segmentation.data.importing.import_data import ImportOptions
from losspool.segmentation.data.importing.import_report import report_import
from losspool.segmentation.data.importing.layouts import in_label_folder, without_label_ending
from losspool.segmentation.data.importing.splitting import Splitting
from losspool.segmentation.data.kinds.cityscapes import CLASSES as CITYSCAPES_CLASSES
from losspool.segmentation.data.kinds.cityscapes import LABEL_IDS as CITYSCAPES_LABEL_IDS
from losspool.segmentation.data.kinds.registry import (
    DATASETS,
    DatasetKind,
    dataset_kind,
    is_custom,
    is_video,
    open_dataset,
)
from losspool.segmentation.data.kinds.voc import report_prepared_voc
from losspool.segmentation.data.protocol import (
    IGNORE,
    ClassInfo,
    Dataset,
    HasFiles,
    HasLooks,
    Pixels,
    Skip,
    WarnOnce,
    check_classes,
    read_next_pair,
    read_pair,
    try_pair,
)

__all__ = [
    "CITYSCAPES_CLASSES",
    "CITYSCAPES_LABEL_IDS",
    "DATASETS",
    "IGNORE",
    "SUFFIXES",
    "Augmentation",
    "ClassIndex",
    "ClassInfo",
    "Dataset",
    "DatasetKind",
    "FileDataset",
    "Groups",
    "HasFiles",
    "HasGroups",
    "HasLooks",
    "HasReading",
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
    "check_root",
    "class_index",
    "contiguous",
    "crop",
    "dataset_kind",
    "existing_folder",
    "groups_of",
    "images_below",
    "in_label_folder",
    "index_warnings",
    "is_custom",
    "is_video",
    "known_splits",
    "open_dataset",
    "open_image",
    "read_image",
    "read_next_pair",
    "read_pair",
    "report_check",
    "report_import",
    "report_lines",
    "report_prepared_voc",
    "try_pair",
    "unread_files",
    "without_label_ending",
]
