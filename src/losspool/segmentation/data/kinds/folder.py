"""Custom datasets: ``images/<split>/…`` and ``labels/<split>/…`` matched by name, and ``classes.yaml``."""

from __future__ import annotations

from os.path import isdir, isfile  # unlike pathlib's, return False for invalid paths
from pathlib import Path, PurePosixPath

from losspool.segmentation.base import UserError
from losspool.segmentation.data.files.file_dataset import (
    FileDataset,
    Pair,
    images_below,
    matched,
    read_list,
    subfolders,
    walk,
)
from losspool.segmentation.data.files.images import SUFFIXES
from losspool.segmentation.data.files.labels import read_classes


def splits(root: Path) -> list[str]:
    """Return the folders below ``images``, and the list files: text files whose first line names an image."""
    lists = [path.stem for path in root.glob("*.txt") if _names_an_image(path, root / "images")]
    return sorted({*lists, *subfolders(root / "images")})


def open_folder(root: Path, split: str) -> FileDataset:
    """Open a split: a folder below ``images`` and ``labels``, or a list file ``<split>.txt`` in the root.

    A list file names images by their path below ``images``, with or without suffix.
    """
    classes = read_classes(root / "classes.yaml")
    name = f"{root.resolve().name}/{split.removesuffix('.txt')}"
    images, labels = root / "images", root / "labels"
    path = root / split if split.endswith(".txt") else root / f"{split}.txt"
    if isdir(images / split):
        if isfile(path) and _names_an_image(path, images):
            raise UserError(f"{path}: the split {split!r} is also a folder below {images}; rename one of them")
        pairs, orphans = matched(images_below(images / split), images_below(labels / split))
    else:
        if not isfile(path):
            raise UserError(f"{images / split}: no such folder, and no list {path.name} in {root}")
        pairs, orphans = _listed(path, images, labels), []
    return FileDataset(
        name, classes.infos, classes.decoder, pairs, orphans, intensity=classes.intensity, groups=classes.groups
    )


def _listed(path: Path, images: Path, labels: Path) -> list[Pair]:
    known, partners = _by_key(images), _by_key(labels)
    pairs: dict[str, Pair] = {}
    for entry in read_list(path):
        key = _key(entry)
        if key in pairs:
            raise UserError(f"{path}: {key!r} is listed twice")
        matches = [image for image in known.get(key, []) if entry in (key, image.relative_to(images).as_posix())]
        if len(matches) != 1:
            problem = "there is no image" if not matches else "there is more than one image"
            raise UserError(f"{path}: {problem} {entry!r} below {images}")
        labelled = partners.get(key, [])
        if len(labelled) > 1:
            raise UserError(f"{labelled[1]}: differs from {labelled[0].name} only in its suffix")
        pairs[key] = Pair(key, matches[0], labelled[0] if labelled else None)
    return list(pairs.values())


def _key(entry: str) -> str:
    path = PurePosixPath(entry)
    return path.with_suffix("").as_posix() if path.suffix.lower() in SUFFIXES else path.as_posix()


def _by_key(folder: Path) -> dict[str, list[Path]]:
    paths: dict[str, list[Path]] = {}
    for path in walk(folder) if folder.is_dir() else ():
        paths.setdefault(_key(path.relative_to(folder).as_posix()), []).append(path)
    return paths


def _names_an_image(path: Path, images: Path) -> bool:
    try:
        names = read_list(path)
    except UserError:
        return False
    if not names:
        return False
    wanted = images / _key(names[0])
    return wanted.parent.is_dir() and any(
        file.stem == wanted.name and file.suffix.lower() in SUFFIXES for file in wanted.parent.iterdir()
    )
