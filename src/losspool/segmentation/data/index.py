"""The class index: which classes each image holds, and where. It aims crops, and counts pixels for the baselines."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from losspool.segmentation.console import console, track
from losspool.segmentation.data.protocol import Dataset
from losspool.segmentation.parallel import in_threads
from losspool.segmentation.storage import replacing

POSITIONS = 64
"""How many positions of a class are kept per image: enough that crops differ, and 30 MB for Cityscapes."""
_VERSION = 1


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


def build(dataset: Dataset) -> ClassIndex:
    """Read every label once, in threads."""
    count = len(dataset.classes)

    def entry(index: int) -> tuple[NDArray[np.int64], tuple[int, ...], list[NDArray[np.int32]]]:
        label = dataset.label(index)
        pixels = np.bincount(label.ravel(), minlength=256)[:count]
        random = np.random.Generator(np.random.Philox(key=index))
        return pixels, label.shape, [_some(label, c, random) for c in range(count) if pixels[c]]

    entries = list(track(in_threads(entry, range(len(dataset))), len(dataset), f"Indexing {dataset.name}"))
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


def class_index(dataset: Dataset, folder: Path | None = None) -> ClassIndex:
    """From the cache if it was made from this very data, else built and cached."""
    name = "".join(letter if letter.isalnum() else "-" for letter in dataset.name)
    key = f"{_VERSION}-{POSITIONS}-{dataset.fingerprint()}"
    path = (folder or cache_folder()) / f"{name}-{key}.safetensors"
    if path.exists():
        try:
            return _read(path, key)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            console.print(f"{path}: damaged, built anew ({error})", markup=False)
    index = build(dataset)
    with replacing(path) as partial:
        save_file({field.name: getattr(index, field.name) for field in fields(index)}, partial, {"key": key})
    return index


def cache_folder() -> Path:
    """``losspool`` in the user's folder of caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "losspool"


def _read(path: Path, key: str) -> ClassIndex:
    with safe_open(path, framework="np") as file:
        if (file.metadata() or {}).get("key") != key:
            raise ValueError("made from other data")
        index = ClassIndex(**{field.name: file.get_tensor(field.name) for field in fields(ClassIndex)})
    images, classes = index.pixels.shape
    if index.sizes.shape != (images, 2) or index.starts.shape != (images * classes + 1,):
        raise ValueError("its tables do not fit together")
    if (np.diff(index.starts) < 0).any() or index.starts[0] != 0 or index.starts[-1] != len(index.positions):
        raise ValueError("its positions do not fit together")
    return index
