"""Datasets by name: the one table that knows them all."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losspool.segmentation.base import UserError, import_by_path, is_import_path
from losspool.segmentation.data import camvid, cityscapes, folder, streets, voc
from losspool.segmentation.data.files import existing_folder
from losspool.segmentation.data.protocol import Dataset


def _no_options(data: Any, split: str) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class DatasetKind:
    """How the splits of one kind of data are opened."""

    open: Callable[..., Dataset]
    """From the data's folder, a split, and ``options``; without the folder where ``generated``."""
    splits: Callable[..., Sequence[str]]
    """The splits that the folder has."""
    generated: bool = False
    """Whether the data are made on the fly and need no folder."""
    options: Callable[[Any, str], dict[str, Any]] = _no_options
    """More arguments of ``open``, from a recipe's section ``data`` and the split."""


DATASETS: dict[str, DatasetKind] = {
    "camvid": DatasetKind(camvid.open_camvid, camvid.splits),
    "cityscapes": DatasetKind(cityscapes.open_cityscapes, cityscapes.splits),
    "folder": DatasetKind(folder.open_folder, folder.splits),
    "voc": DatasetKind(voc.open_voc, voc.splits),
    "streets": DatasetKind(streets.Streets, streets.splits, generated=True, options=streets.options),
}
"""By the name that ``data.name`` gives. An outside package's kind is named by its import path instead."""


def dataset_kind(name: str) -> DatasetKind:
    """The entry of ``DATASETS``, or what an import path leads to."""
    if not is_import_path(name):
        check_dataset_name(name)
        return DATASETS[name]
    kind = import_by_path(name, "dataset")
    if not isinstance(kind, DatasetKind):
        raise UserError(f"dataset {name!r} must be a losspool.segmentation.data.DatasetKind, got {type(kind).__name__}")
    return kind


def check_dataset_name(name: str) -> None:
    """Raise for a name that is neither in ``DATASETS`` nor an import path."""
    if name not in DATASETS and not is_import_path(name):
        near = difflib.get_close_matches(name, DATASETS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(DATASETS)}"
        raise UserError(f"unknown dataset {name!r}; {hint}")


def open_dataset(name: str, root: Path | str | None, split: str, **options: Any) -> Dataset:
    """A split of a dataset. ``streets`` needs no root; ``options`` are its own (seed, size, count)."""
    kind = dataset_kind(name)
    if kind.generated:
        return kind.open(split, **options)
    if options and kind.options is _no_options:
        raise TypeError(f"{name} takes no options, got {', '.join(options)}")
    dataset = kind.open(_root(name, root), split, **options)
    if not len(dataset):
        raise UserError(f"{root}: the split {split!r} of {name} holds no images")
    return dataset


def splits_of(name: str, root: Path | str | None) -> Sequence[str]:
    """The splits that the data at ``root`` has."""
    kind = dataset_kind(name)
    if kind.generated:
        return kind.splits()
    found = kind.splits(_root(name, root))
    if not found:
        raise UserError(f"{root}: holds no split of {name}")
    return found


def _root(name: str, root: Path | str | None) -> Path:
    if root is None:
        raise UserError(f"the dataset {name!r} needs the folder of its data")
    # pathlib's expanduser would raise for an unknown user
    return existing_folder(Path(os.path.expanduser(root)), "the root of the data")
