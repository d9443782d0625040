"""Datasets of files: a list of image and label paths, and the reading of one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image

from losspool.segmentation.data.images import SUFFIXES, read_image
from losspool.segmentation.data.protocol import ClassInfo, Pixels
from losspool.segmentation.errors import BrokenFileError, UserError


class Decoder(Protocol):
    """Reads label files; ``key`` changes whenever it would read them otherwise."""

    @property
    def key(self) -> str: ...

    def read(self, path: Path) -> Pixels: ...


@dataclass(frozen=True)
class Pair:
    """An image, and the label that belongs to it. ``label`` is None where there is none."""

    name: str
    image: Path
    label: Path | None


class FileDataset:
    """Pairs of files behind the protocol; each layout only has to list them."""

    def __init__(
        self,
        name: str,
        classes: Sequence[ClassInfo],
        decoder: Decoder,
        pairs: Iterable[Pair],
        orphans: Iterable[Path] = (),
    ) -> None:
        self.name = name
        self.classes = tuple(classes)
        self.pairs = tuple(sorted(pairs, key=lambda pair: pair.name))
        self.orphans = tuple(orphans)
        """Labels that belong to no image."""
        self._decoder = decoder

    @property
    def names(self) -> Sequence[str]:
        return [pair.name for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def image(self, index: int) -> Image.Image:
        return read_image(self.pairs[index].image)

    def label(self, index: int) -> Pixels:
        pair = self.pairs[index]
        if pair.label is None:
            raise BrokenFileError(pair.image, "this image has no label")
        return self._decoder.read(pair.label)

    def fingerprint(self) -> str:
        """From names, sizes and times of change: reading every file would cost as much as what is cached."""
        digest = hashlib.sha256(repr((self.name, self.classes, self._decoder.key)).encode())
        for pair in self.pairs:
            digest.update(repr((pair.name, _stamp(pair))).encode())
        return digest.hexdigest()[:32]


def _stamp(pair: Pair) -> tuple[tuple[str, ...], int, int]:
    if pair.label is None:
        raise BrokenFileError(pair.image, "this image has no label")
    try:
        status = pair.label.stat()
    except OSError as error:
        raise BrokenFileError(pair.label, f"the file cannot be opened ({error.strerror})") from None
    return pair.label.parts[-2:], status.st_size, status.st_mtime_ns


def existing_folder(path: Path, what: str) -> Path:
    """``path`` if it is a folder; else one sentence that names it."""
    if not path.is_dir():
        raise UserError(f"{path}: {what} does not exist")
    return path


def subfolders(path: Path) -> list[str]:
    """Names of the folders in ``path``; none where it does not exist."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def images_below(folder: Path) -> dict[str, Path]:
    """Every image file below ``folder`` by its path there without suffix, in the order of the names.

    Two files that differ in their suffix alone cannot be told apart by name and are refused.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
            continue
        key = path.relative_to(folder).with_suffix("").as_posix()
        if key in found:
            raise UserError(f"{path}: differs from {found[key].name} in its suffix alone")
        found[key] = path
    return found


def matched(images: Mapping[str, Path], labels: Mapping[str, Path]) -> tuple[list[Pair], list[Path]]:
    """Images with their labels by name, and the labels that are left over."""
    pairs = [Pair(key, image, labels.get(key)) for key, image in images.items()]
    return pairs, [path for key, path in labels.items() if key not in images]
