"""Any user's data: ``images/<split>/…``, ``labels/<split>/…`` matched by name, and ``classes.yaml``."""

from __future__ import annotations

from pathlib import Path

from losspool.segmentation.data.class_file import read_classes
from losspool.segmentation.data.files import FileDataset, Pair, images_below, matched, subfolders
from losspool.segmentation.data.images import SUFFIXES
from losspool.segmentation.data.lists import read_list
from losspool.segmentation.errors import UserError


def splits(root: Path) -> list[str]:
    """Folders below ``images``; or list files, and then the folders are only how the files are kept."""
    return sorted(path.stem for path in root.glob("*.txt")) or subfolders(root / "images")


def open_folder(root: Path, split: str) -> FileDataset:
    """A split is a folder below ``images`` and ``labels``, or a list file (``<split>.txt`` below the root).

    A list names images by their path below ``images``, with or without suffix.
    """
    classes = read_classes(root / "classes.yaml")
    name = f"{root.resolve().name}/{split.removesuffix('.txt')}"
    images, labels = root / "images", root / "labels"
    if (images / split).is_dir():
        found = matched(images_below(images / split), images_below(labels / split))
        return FileDataset(name, classes.infos, classes.decoder, *found)
    path = root / split if split.endswith(".txt") else root / f"{split}.txt"
    if not path.exists():
        raise UserError(f"{images / split}: no such folder, and no list {path.name} in {root}")
    pairs = (_listed(path, entry, images, labels) for entry in read_list(path))
    return FileDataset(name, classes.infos, classes.decoder, pairs)


def _listed(path: Path, entry: str, images: Path, labels: Path) -> Pair:
    key = entry[: -len(Path(entry).suffix)] if Path(entry).suffix.lower() in SUFFIXES else entry
    image = _with_any_suffix(images / key)
    if image is None:
        raise UserError(f"{path}: there is no image {entry!r} below {images}")
    return Pair(key, image, _with_any_suffix(labels / key))


def _with_any_suffix(path: Path) -> Path | None:
    candidates = (path.with_name(path.name + suffix) for known in SUFFIXES for suffix in (known, known.upper()))
    return next((candidate for candidate in candidates if candidate.exists()), None)
