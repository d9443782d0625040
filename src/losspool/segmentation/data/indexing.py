"""The class index: which classes each image holds, and where. It aims crops, and counts pixels for the baselines."""

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
"""How many positions of a class are kept per image: enough that crops differ, and 30 MB for Cityscapes."""
_VERSION = 1
_STALE = 3600.0  # seconds


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """Of N images and C classes."""

    pixels: NDArray[np.int64]
    """(N, C): how many pixels of each image belong to each class."""
    sizes: NDArray[np.int64]
    """(N, 2): height and width."""
    starts: NDArray[np.int64]
    """(N·C + 1,): ``positions[starts[i·C + c] : starts[i·C + c + 1]]`` are those of class c in image i."""
    positions: NDArray[np.int32]
    """(P, 2): row and column."""

    def positions_of(self, image: int, label: int) -> NDArray[np.int32]:
        """(K, 2): up to ``POSITIONS`` pixels of the class, drawn uniformly from all that the image has."""
        entry = image * self.pixels.shape[1] + label
        return self.positions[self.starts[entry] : self.starts[entry + 1]]

    def images_with(self, label: int) -> NDArray[np.intp]:
        """The images that hold at least a pixel of the class."""
        return np.flatnonzero(self.pixels[:, label])


_TABLES = tuple(field.name for field in fields(ClassIndex))


def build_index(dataset: Dataset, broken: Skip | None = None) -> ClassIndex:
    """Read every label once, in threads. One that is ``broken`` and may be skipped holds no class, and has no size."""
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
        return pixels, label.shape, [_some(label, c, random) for c in range(count) if pixels[c]]

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


def _some(label: NDArray[np.uint8], wanted: int, random: np.random.Generator) -> NDArray[np.int32]:
    found = np.flatnonzero(label == wanted)
    if len(found) > POSITIONS:
        found = np.sort(random.choice(found, POSITIONS, replace=False, shuffle=False))
    return np.stack(np.divmod(found, label.shape[1]), axis=1).astype(np.int32)  # (K,) -> (K, 2)


def class_index(dataset: Dataset, folder: Path | None = None, broken: Skip | None = None) -> ClassIndex:
    """From the cache if it was made from this very data, else built, and cached if that is possible.

    Without the labels that are ``broken``, if they may be skipped. Such an index is not cached: it would hide them
    from the next run.
    """
    try:
        return _cached(dataset, folder)
    except BrokenFileError:
        if broken is None:
            raise
        return build_index(dataset, broken)


def _cached(dataset: Dataset, folder: Path | None) -> ClassIndex:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in dataset.name)[:40]
    key = f"{_VERSION}-{POSITIONS}-{dataset.fingerprint()}"
    path = Path(os.path.expanduser(folder or cache_folder()), f"{name}-{key}.safetensors")
    if os.path.exists(path):
        try:
            return _decoded(path.read_bytes(), key)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            say(f"{path}: cannot be used, the index is built anew ({error})")
    index = build_index(dataset)
    content = _encoded(index, key)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
        _sweep(path)
    except UserError as error:
        say(f"{error}; the index will be built again next time")
    except ValueError as error:  # no possible name of a file
        say(f"{path}: cannot be written ({error}); the index will be built again next time")
    return index


def _sweep(path: Path) -> None:
    """Delete what killed writers of this very file have left.

    Not what is younger than an hour, by the clock of the disk: somebody may be writing it, at the same time as we did.
    """
    with suppress(OSError):  # another may sweep as well
        now = path.stat().st_mtime
        for leftover in path.parent.glob(f".{path.name}.*{PARTIAL}"):
            if now - leftover.stat().st_mtime > _STALE:
                leftover.unlink()


def cache_folder() -> Path:
    """``losspool`` in the user's folder of caches, or in that of temporary files for a user without a home."""
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
