"""Datasets of files: a list of image and label paths, and the reading of one of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError
from losspool.segmentation.data.images import SUFFIXES, read_image, unreadable
from losspool.segmentation.data.protocol import ClassInfo, Pixels


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
        self.names: Sequence[str] = [pair.name for pair in self.pairs]
        self.orphans = tuple(orphans)
        """Labels that belong to no image."""
        self._decoder = decoder

    def __len__(self) -> int:
        return len(self.pairs)

    def image(self, index: int) -> Image.Image:
        return read_image(self.pairs[index].image)

    def label(self, index: int) -> Pixels:
        return self._decoder.read(_label_of(self.pairs[index]))

    def fingerprint(self) -> str:
        """From names, sizes and times of change: reading every file would cost as much as what is cached."""
        digest = hashlib.sha256(repr((self.name, self.classes, self._decoder.key)).encode())
        for pair in self.pairs:
            digest.update(repr((pair.name, _stamp(pair))).encode())
        return digest.hexdigest()[:32]


def _stamp(pair: Pair) -> tuple[tuple[str, ...], int, int]:
    path = _label_of(pair)
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    return path.parts[-2:], status.st_size, status.st_mtime_ns


def _label_of(pair: Pair) -> Path:
    if pair.label is None:
        raise BrokenFileError(pair.image, "this image has no label")
    return pair.label


def existing_folder(path: Path, what: str) -> Path:
    """``path`` if it is a folder; else one sentence that names it."""
    try:
        if path.is_dir():
            os.listdir(path)
            return path
    except OSError as error:
        raise UserError(f"{path}: {what} cannot be opened ({error.strerror})") from None
    raise UserError(f"{path}: {what} {'is not a folder' if path.exists() else 'does not exist'}")


def subfolders(path: Path) -> list[str]:
    """Names of the folders in ``path``; none where it does not exist."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def walk(folder: Path) -> Iterator[Path]:
    """Every image file below ``folder``, in the order of the paths; linked folders too, hidden ones not."""
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_not_readable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if (real := os.path.realpath(here)) in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        for name in sorted(files):
            path = Path(here, name)
            if path.suffix.lower() in SUFFIXES and not name.startswith(".") and path.is_file():
                yield path


def _not_readable(error: OSError) -> None:
    raise UserError(f"{error.filename}: the folder cannot be opened ({error.strerror})")


def images_below(folder: Path) -> dict[str, Path]:
    """Every image file below ``folder`` by its path there without suffix; none where there is no folder.

    Two files that differ in their suffix alone cannot be told apart by name and are refused.
    """
    found: dict[str, Path] = {}
    for path in walk(folder) if folder.is_dir() else ():
        key = path.relative_to(folder).with_suffix("").as_posix()
        if key in found:
            raise UserError(f"{path}: differs from {found[key].name} in its suffix alone")
        found[key] = path
    return found


def matched(images: Mapping[str, Path], labels: Mapping[str, Path]) -> tuple[list[Pair], list[Path]]:
    """Images with their labels by name, and the labels that are left over."""
    pairs = [Pair(key, image, labels.get(key)) for key, image in images.items()]
    return pairs, [path for key, path in labels.items() if key not in images]


def read_list(path: Path) -> list[str]:
    """The names in the file, in its order. One that leads out of the folder, or comes twice, is refused."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: the list file does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the list file cannot be read ({error})") from None
    names: dict[str, None] = {}  # in order, and quick to look up
    for line in lines:
        if not line.strip():
            continue
        name = PurePosixPath(line)
        if name.is_absolute() or ".." in name.parts or "\0" in line:
            raise UserError(f"{path}: {line!r} leads out of the folder")
        if str(name) in names:
            raise UserError(f"{path}: {str(name)!r} stands there twice")
        names[str(name)] = None
    return list(names)
