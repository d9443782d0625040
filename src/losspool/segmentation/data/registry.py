"""Datasets by name: the one place that knows them all."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from losspool.segmentation.data import camvid, cityscapes, folder, voc
from losspool.segmentation.data.files import existing_folder
from losspool.segmentation.data.protocol import Dataset
from losspool.segmentation.data.streets import SPLITS as STREETS_SPLITS
from losspool.segmentation.data.streets import Streets
from losspool.segmentation.errors import UserError

_OF_FILES: dict[str, tuple[Callable[[Path, str], Dataset], Callable[[Path], Sequence[str]]]] = {
    "camvid": (camvid.open_camvid, camvid.splits),
    "cityscapes": (cityscapes.open_cityscapes, cityscapes.splits),
    "folder": (folder.open_folder, folder.splits),
    "voc": (voc.open_voc, voc.splits),
}
GENERATED = "streets"
NAMES = (*_OF_FILES, GENERATED)


def open_dataset(name: str, root: Path | str | None, split: str, **options: Any) -> Dataset:
    """A split of a dataset. ``streets`` needs no root; ``options`` are its own (seed, size, count)."""
    if _known(name) == GENERATED:
        return Streets(split, **options)
    if options:
        raise TypeError(f"{name} takes no options, got {', '.join(options)}")
    dataset = _OF_FILES[name][0](_root(name, root), split)
    if not len(dataset):
        raise UserError(f"{root}: the split {split!r} of {name} holds no images")
    return dataset


def splits_of(name: str, root: Path | str | None) -> Sequence[str]:
    """The splits that the data at ``root`` has."""
    if _known(name) == GENERATED:
        return STREETS_SPLITS
    found = _OF_FILES[name][1](_root(name, root))
    if not found:
        raise UserError(f"{root}: holds no split of {name}")
    return found


def _known(name: str) -> str:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NAMES)}"
        raise UserError(f"unknown dataset {name!r}; {hint}")
    return name


def _root(name: str, root: Path | str | None) -> Path:
    if root is None:
        raise UserError(f"the dataset {name!r} needs the folder of its data")
    # pathlib's expanduser would raise for a user that there is not
    return existing_folder(Path(os.path.expanduser(root)), "the root of the data")
