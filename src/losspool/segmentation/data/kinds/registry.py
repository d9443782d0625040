"""Open datasets by name, or by import path for custom kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losspool.segmentation.base import UserError, did_you_mean, import_by_path, is_import_path
from losspool.segmentation.data.files.file_dataset import existing_folder
from losspool.segmentation.data.files.images import HasReading, Reading
from losspool.segmentation.data.kinds import camvid, cityscapes, folder, streets, voc
from losspool.segmentation.data.protocol import Dataset


def _no_options(data: Any, split: str) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class DatasetKind:
    """How to list and open the splits of one kind of dataset."""

    open: Callable[..., Dataset]
    """Opens a split, given the root folder (unless ``generated``), the split, and ``options``."""
    splits: Callable[..., Sequence[str]]
    """Lists the splits in the root folder."""
    generated: bool = False
    """Whether the data is generated on the fly and needs no folder."""
    options: Callable[[Any, str], dict[str, Any]] = _no_options
    """Returns further arguments of ``open``, from the ``data`` section of a recipe and the split."""
    custom: bool = False
    """Whether each root is a dataset of its own, described by its classes.yaml; else every root holds the same data."""
    video: bool = False
    """Whether the images are frames of videos. Only evaluations of version 0.1 need it; newer ones have their own."""


DATASETS: dict[str, DatasetKind] = {
    "camvid": DatasetKind(camvid.open_camvid, camvid.splits, video=True),
    "cityscapes": DatasetKind(cityscapes.open_cityscapes, cityscapes.splits, video=True),
    "folder": DatasetKind(folder.open_folder, folder.splits, custom=True),
    "voc": DatasetKind(voc.open_voc, voc.splits),
    "streets": DatasetKind(streets.Streets, streets.splits, generated=True, options=streets.options),
}
"""Dataset kinds by ``data.name``. Use an import path for a kind from another package."""


def dataset_kind(name: str) -> DatasetKind:
    """Return the entry of ``DATASETS``, or the object at an import path."""
    if not is_import_path(name):
        check_dataset_name(name)
        return DATASETS[name]
    kind = import_by_path(name, "dataset")
    if not isinstance(kind, DatasetKind):
        raise UserError(f"dataset {name!r} must be a losspool.segmentation.data.DatasetKind, got {type(kind).__name__}")
    return kind


def is_custom(name: str) -> bool:
    """``DatasetKind.custom``. False for import paths: runs may be untrusted, and asking would import their code."""
    return name in DATASETS and DATASETS[name].custom


def is_video(name: str) -> bool:
    """``DatasetKind.video``. False for import paths, see :func:`is_custom`."""
    return name in DATASETS and DATASETS[name].video


def check_dataset_name(name: str) -> None:
    """Raise if the name is neither in ``DATASETS`` nor an import path."""
    if name not in DATASETS and not is_import_path(name):
        hint = did_you_mean(name, DATASETS) or f"choose from {', '.join(DATASETS)}"
        raise UserError(f"unknown dataset {name!r}; {hint}")


def open_dataset(
    name: str, root: Path | str | None, split: str, *, reading: Reading | None = None, **options: Any
) -> Dataset:
    """Open a split. Generated datasets need no root; ``options`` depend on the kind (streets: seed, size, count).

    ``reading`` is how image files are read (default: upright, and with the range of their values).
    """
    kind = dataset_kind(name)
    if kind.generated:
        return kind.open(split, **options)
    if options and kind.options is _no_options:
        raise TypeError(f"{name} takes no options, got {', '.join(options)}")
    dataset = kind.open(_root(name, root), split, **options)
    if not len(dataset):
        raise UserError(f"{root}: the split {split!r} of {name} holds no images")
    if isinstance(dataset, HasReading):
        dataset.read_as(reading or Reading())
    return dataset


def splits_of(name: str, root: Path | str | None) -> Sequence[str]:
    """Return the splits available at ``root``."""
    kind = dataset_kind(name)
    if kind.generated:
        return kind.splits()
    names = kind.splits(_root(name, root))
    if not names:
        raise UserError(f"{root}: no split of {name} found")
    return names


def _root(name: str, root: Path | str | None) -> Path:
    if root is None:
        raise UserError(f"the dataset {name!r} needs a root folder")
    # pathlib's expanduser raises for an unknown user
    return existing_folder(Path(os.path.expanduser(root)), "the root of the data")
