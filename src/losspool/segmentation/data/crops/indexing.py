"""The class index: which classes each image contains, and where. Used for sampling crops and class frequencies."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from losspool.segmentation.base import PARTIAL, BrokenFileError, UserError, in_threads, replacing, say, track
from losspool.segmentation.data.protocol import Dataset, Skip

POSITIONS = 64
"""Positions kept per class and image: enough for varied crops, and 30 MB for Cityscapes."""
_VERSION = 1
_STALE = 3600.0  # seconds


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """Class statistics of N images and C classes."""

    pixels: NDArray[np.int64]
    """(N, C): number of pixels per image and class."""
    sizes: NDArray[np.int64]
    """(N, 2): height and width."""
    starts: NDArray[np.int64]
    """(N·C + 1,): ``positions[starts[i·C + c] : starts[i·C + c + 1]]`` are the positions of class c in image i."""
    positions: NDArray[np.int32]
    """(P, 2): row and column."""

    def positions_of(self, image: int, label: int) -> NDArray[np.int32]:
        """Return (K, 2): up to ``POSITIONS`` pixels of the class, drawn uniformly from the image."""
        entry = image * self.pixels.shape[1] + label
        return self.positions[self.starts[entry] : self.starts[entry + 1]]

    def images_with(self, label: int) -> NDArray[np.intp]:
        """Return the indices of images that contain the class."""
        return np.flatnonzero(self.pixels[:, label])


_TABLES = tuple(field.name for field in fields(ClassIndex))


def build_index(dataset: Dataset, broken: Skip | None = None) -> ClassIndex:
    """Read every label once, in threads. If ``broken`` is given, broken labels are reported to it and left empty."""
    count = len(dataset.classes)
    faults: dict[int, BrokenFileError] = {}

    def entry(index: int) -> tuple[NDArray[np.int64], tuple[int, ...], list[NDArray[np.int32]]]:
        try:
            label = dataset.label(index)
        except BrokenFileError as error:
            if broken is None:
                raise
            faults[index] = error
            label = np.zeros((0, 0), np.uint8)
        pixels = np.bincount(label.ravel(), minlength=256)[:count]
        random = np.random.Generator(np.random.Philox(key=index))
        return pixels, label.shape, [_sample_positions(label, c, random) for c in range(count) if pixels[c]]

    entries = list(track(in_threads(entry, range(len(dataset))), len(dataset), f"Indexing {dataset.name}"))
    for index in sorted(faults):
        assert broken is not None
        broken(faults[index])
    pixels = np.stack([pixels for pixels, _, _ in entries])
    kept = np.minimum(pixels, POSITIONS).ravel()
    return ClassIndex(
        pixels=pixels,
        sizes=np.array([size for _, size, _ in entries], np.int64),
        starts=np.concatenate([[0], np.cumsum(kept)]).astype(np.int64),
        positions=np.concatenate([np.zeros((0, 2), np.int32), *(part for _, _, parts in entries for part in parts)]),
    )


def _sample_positions(label: NDArray[np.uint8], wanted: int, random: np.random.Generator) -> NDArray[np.int32]:
    places = np.flatnonzero(label == wanted)
    if len(places) > POSITIONS:
        places = np.sort(random.choice(places, POSITIONS, replace=False, shuffle=False))
    return np.stack(np.divmod(places, label.shape[1]), axis=1).astype(np.int32)  # (K,) -> (K, 2)


def class_index(dataset: Dataset, folder: Path | str | None = None, broken: Skip | None = None) -> ClassIndex:
    """Return the cached index if it matches the data; else build it, and cache it if possible.

    If ``broken`` is given, broken labels are skipped. An index with skipped labels is not cached, because it would hide
    them from the next run.
    """
    try:
        return _cached(dataset, folder)
    except BrokenFileError:
        if broken is None:
            raise
        return build_index(dataset, broken)


def _cached(dataset: Dataset, folder: Path | str | None) -> ClassIndex:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in dataset.name)[:40]
    key = f"{_VERSION}-{POSITIONS}-{dataset.fingerprint()}"
    path = Path(os.path.expanduser(folder or cache_folder()), f"{name}-{key}.safetensors")
    if os.path.exists(path):
        try:
            return _decoded(path.read_bytes(), key)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            say(f"{path}: the cached index is invalid and will be rebuilt ({error})")
    index = build_index(dataset)
    content = _encoded(index, key)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
        _sweep(path)
    except UserError as error:
        say(f"{error}; the index will be built again next time")
    except ValueError as error:  # not a valid file name
        say(f"{path}: cannot be written ({error}); the index will be built again next time")
    return index


def _sweep(path: Path) -> None:
    """Delete partial files that killed writers of this file have left.

    Keeps files younger than an hour by the disk's clock, because another process may still be writing them.
    """
    with suppress(OSError):  # another process may delete them too
        now = path.stat().st_mtime
        for leftover in path.parent.glob(f".{path.name}.*{PARTIAL}"):
            if now - leftover.stat().st_mtime > _STALE:
                leftover.unlink()


def cache_folder() -> Path:
    """Return ``losspool`` in the user's cache folder, or in the temporary folder for users without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "losspool"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "losspool"


def _encoded(index: ClassIndex, key: str) -> bytes:
    return save({name: getattr(index, name) for name in _TABLES}, {"key": key, "checksum": _checksum(index)})


def _decoded(content: bytes, key: str) -> ClassIndex:
    index = ClassIndex(**load(content))
    size = int.from_bytes(content[:8], "little")  # safetensors: the length of the header, then the header
    stored = json.loads(content[8 : 8 + size])["__metadata__"]
    if stored["key"] != key or stored["checksum"] != _checksum(index):
        raise ValueError("its checksum is wrong, or it was made from other data")
    return index


def _checksum(index: ClassIndex) -> str:
    digest = hashlib.sha256()
    for name in _TABLES:
        table = getattr(index, name)
        digest.update(f"{name}{table.dtype}{table.shape}".encode())
        digest.update(table.tobytes())
    return digest.hexdigest()
