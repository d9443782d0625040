"""Datasets stored as image and label files."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.images import SUFFIXES, Reading, read_image, unreadable
from losspool.segmentation.data.files.intensity import found_intensity
from losspool.segmentation.data.files.labels import LabelDecoder
from losspool.segmentation.data.protocol import ClassInfo, Pixels

_UNREAD = (
    *(".gif", ".npy", ".npz", ".mat", ".h5", ".nii", ".nii.gz", ".dcm", ".heic", ".heif", ".avif", ".jp2", ".exr"),
    *(".ppm", ".pgm", ".pbm", ".tga", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw"),
)
"""Formats of pictures and arrays that are not read."""


class Decoder(Protocol):
    """Reads label files. ``key`` must change whenever the decoding changes."""

    @property
    def key(self) -> str: ...

    def read(self, path: Path) -> Pixels: ...


@dataclass(frozen=True)
class Pair:
    """An image and its label. ``label`` is None if the image has none."""

    name: str
    image: Path
    label: Path | None


class FileDataset:
    """A dataset of file pairs. Each layout only needs to list its pairs."""

    def __init__(
        self,
        name: str,
        classes: Sequence[ClassInfo],
        decoder: Decoder,
        pairs: Iterable[Pair],
        orphans: Iterable[Path] = (),
        *,
        intensity: tuple[float, float] | None = None,
        groups: Groups | None = None,
    ) -> None:
        self.name = name
        self.classes = tuple(classes)
        self.pairs = tuple(sorted(pairs, key=lambda pair: pair.name))
        self.names: Sequence[str] = [pair.name for pair in self.pairs]
        self.orphans = tuple(orphans)
        """Labels without an image."""
        self.groups = groups or Groups()
        """Which images belong together."""
        self.decoder = decoder
        self.reading = Reading()
        self._intensity = intensity

    def read_as(self, reading: Reading) -> None:
        """Read the files like this from now on. ``auto`` becomes the range that the dataset states, or has."""
        if reading.intensity == "auto":
            found = self._intensity or found_intensity([pair.image for pair in self.pairs])
            reading = replace(reading, intensity=found or "auto")
        if isinstance(self.decoder, LabelDecoder) and reading.exif == "ignore":
            self.decoder = self.decoder.ignoring_exif()
        self.reading = reading

    def __len__(self) -> int:
        return len(self.pairs)

    def image(self, index: int) -> Image.Image:
        return read_image(self.pairs[index].image, self.reading)

    def label(self, index: int) -> Pixels:
        return self.decoder.read(_label_of(self.pairs[index]))

    def fingerprint(self) -> str:
        """Hash names, sizes and modification times. Reading every file would cost as much as rebuilding the cache."""
        digest = hashlib.sha256(repr((self.name, self.classes, self.decoder.key)).encode())
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
    """Return ``path`` if it is a readable folder, else raise an error that names it."""
    try:
        if path.is_dir():
            os.listdir(path)
            return path
    except OSError as error:
        raise UserError(f"{path}: {what} cannot be opened ({error.strerror})") from None
    raise UserError(f"{path}: {what} {'is not a folder' if path.exists() else 'does not exist'}")


def subfolders(path: Path) -> list[str]:
    """Return the names of the folders in ``path``; empty if it does not exist."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def walk(folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[Path]:
    """Yield every image file below ``folder`` in path order. Follows linked folders, skips hidden ones."""
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_not_readable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if (real := os.path.realpath(here)) in seen:  # a link back to a parent
            folders.clear()
            continue
        seen.add(real)
        for name in sorted(files):
            path = Path(here, name)
            if name.lower().endswith(suffixes) and not name.startswith(".") and path.is_file():
                yield path


def unread_files(folder: Path) -> str:
    """Say which pictures below a folder are of formats that are not read; empty if there are none."""
    found = Counter(path.suffix.lower() for path in walk(folder, _UNREAD))
    if not found:
        return ""
    listed = ", ".join(f"{count} × {suffix}" for suffix, count in found.most_common())
    return f"files of other formats are not read ({listed}): convert them to one of {', '.join(SUFFIXES)}"


def _not_readable(error: OSError) -> None:
    raise UserError(f"{error.filename}: the folder cannot be opened ({error.strerror})")


def images_below(folder: Path) -> dict[str, Path]:
    """Map relative paths without suffix to the image files below ``folder``; empty if it does not exist.

    Raises if two files differ only in their suffix, because their names would be ambiguous.
    """
    images: dict[str, Path] = {}
    for path in walk(folder) if folder.is_dir() else ():
        key = path.relative_to(folder).with_suffix("").as_posix()
        if key in images:
            raise UserError(f"{path}: differs from {images[key].name} only in its suffix")
        images[key] = path
    return images


def matched(images: Mapping[str, Path], labels: Mapping[str, Path]) -> tuple[list[Pair], list[Path]]:
    """Match images and labels by name. Return the pairs, and the labels without an image."""
    pairs = [Pair(key, image, labels.get(key)) for key, image in images.items()]
    return pairs, [path for key, path in labels.items() if key not in images]


def read_list(path: Path) -> list[str]:
    """Read the names in a list file, in order. Raises on duplicates and on paths outside the folder."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: the list file does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the list file cannot be read ({error})") from None
    names: dict[str, None] = {}  # an ordered set
    for line in lines:
        if not line.strip():
            continue
        name = PurePosixPath(line)
        if name.is_absolute() or ".." in name.parts or "\0" in line:
            raise UserError(f"{path}: {line!r} points outside the folder")
        if str(name) in names:
            raise UserError(f"{path}: {str(name)!r} is listed twice")
        names[str(name)] = None
    return list(names)
