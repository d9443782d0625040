"""What a folder holds instead of a dataset of the kind that was asked for, and the command that takes it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from losspool.segmentation.base import UserError
from losspool.segmentation.data.files.file_dataset import walk
from losspool.segmentation.data.importing.import_data import source_layout
from losspool.segmentation.data.kinds.registry import is_custom, splits_of

CLASSES = "classes.yaml"


def known_splits(name: str, root: Path | None) -> Sequence[str]:
    """The splits; where there are none, the error says how to get them."""
    try:
        return splits_of(name, root)
    except UserError as error:
        raise with_hint(error, name, root) from None


def check_root(name: str, root: Path | None) -> None:
    """Raise for a folder without the file of a custom dataset, with the command that makes one of it."""
    if is_custom(name) and root is not None and os.path.isdir(root) and not os.path.exists(root / CLASSES):
        raise with_hint(UserError(f"{root}: there is no {CLASSES}"), name, root)


def with_hint(error: UserError, name: str, root: Path | None) -> UserError:
    """The error with what the folder holds instead, if it is not a custom dataset."""
    hint = layout_hint(root) if is_custom(name) and root is not None and os.path.isdir(root) else ""
    return UserError(f"{error}; it {hint}") if hint else error


def layout_hint(root: Path) -> str:
    """The layout that a folder has instead of ours, and the command that takes it; empty if it has none."""
    if is_cityscapes(root):
        return f"has the layout of Cityscapes; run: {_command('check', 'cityscapes', root)}"
    try:
        return f"has the layout {source_layout(root)}; run: {_command('import', root, 'DEST')}"
    except UserError:
        if (root / CLASSES).is_file():
            return ""  # ours, with a fault that is reported already
    if any(True for _ in walk(root)):
        named = _command("import", root, "DEST", "--images", "FOLDER", "--labels", "FOLDER")
        return f"holds images, but no name says which are labels; name the folders: {named}"
    return ""


def is_cityscapes(root: Path) -> bool:
    return (root / "leftImg8bit").is_dir() and (root / "gtFine").is_dir()


def _command(*words: object) -> str:
    return shlex.join(["losspool", "data", *map(str, words)])
