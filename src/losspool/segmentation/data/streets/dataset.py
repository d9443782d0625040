"""The street scenes as a dataset: nothing on disk, any number of images, the same ones for everybody."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.data.protocol import ClassInfo, Pixels
from losspool.segmentation.data.streets.classes import CLASSES, LOOKS
from losspool.segmentation.data.streets.compose import VERSION, Scene, scene

COUNTS = {"train": 1000, "val": 100, "test": 200}
"""How many scenes each split has unless told otherwise."""
SPLITS = tuple(COUNTS)

MOST = 1_000_000
"""Scenes of a split: names have six digits."""
SIDES = (32, 2048)
"""The shortest and the longest side of a picture: below nothing is left to see, above one takes seconds."""
KEPT = 8
"""Scenes kept in memory: a loader asks for a scene's image, label and looks one after the other."""


def splits() -> tuple[str, ...]:
    return SPLITS


def options(data: Any, split: str) -> dict[str, Any]:
    """The size and number of scenes, from a recipe's section ``data``; only the training split has a number."""
    return {"size": data.streets_size, **({"count": data.streets_train} if split == "train" else {})}


class Streets:
    """Generated street scenes, deterministic in (seed, split, index, size); the first ones do not depend on count."""

    def __init__(
        self, split: str = "train", *, seed: int = 0, size: tuple[int, int] = (256, 256), count: int | None = None
    ) -> None:
        if split not in SPLITS:
            raise UserError(f"streets has the splits {', '.join(SPLITS)}, not {split!r}")
        if count is not None and not (_is_whole(count) and 1 <= count <= MOST):
            raise UserError(f"count of streets must be a whole number from 1 to {MOST}, not {count!r}")
        if not _is_whole(seed):
            raise UserError(f"seed of streets must be a whole number, not {seed!r}")
        self._split, self._seed = split, seed
        self._size = _checked_size(size)
        self._count = COUNTS[split] if count is None else count
        self._names = tuple(f"streets-{split}-{index:06d}" for index in range(self._count))
        self._forget()

    @property
    def name(self) -> str:
        return f"streets/{self._split}"

    @property
    def classes(self) -> Sequence[ClassInfo]:
        return CLASSES

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def __len__(self) -> int:
        return self._count

    def image(self, index: int) -> Image.Image:
        """RGB."""
        return Image.fromarray(self._scene(index).image)

    def label(self, index: int) -> Pixels:
        """(H, W), the size of the image, read-only."""
        return self._scene(index).label

    @property
    def look_names(self) -> Sequence[str]:
        """The names of the looks, as metrics hold them: ``pedestrian/rare``."""
        return [look.key for look in LOOKS]

    def looks(self, index: int) -> Pixels:
        """(H, W), read-only: one plus the look's index in LOOKS where the class has looks, zero elsewhere."""
        return self._scene(index).looks

    def fingerprint(self) -> str:
        """Changes with whatever the labels depend on: the generator, the seed, the split, the size, the count."""
        key = ("streets", VERSION, self._seed, self._split, self._size, self._count)
        return hashlib.sha256(repr(key).encode()).hexdigest()

    def _scene(self, index: int) -> Scene:
        if not 0 <= index < self._count:
            raise IndexError(f"{self.name} has {self._count} scenes: no index {index}")
        index = int(index)  # numpy's whole numbers print differently, and would be other keys to the dice
        with self._lock:
            kept = self._kept.get(index)
        if kept is None:
            kept = scene(self._seed, self._split, index, self._size)  # outside the lock: threads draw side by side
            with self._lock:
                self._kept[index] = kept
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return kept

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Scene] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_size(size: Sequence[int]) -> tuple[int, int]:
    low, high = SIDES
    sides = tuple(size) if isinstance(size, Sequence) else ()
    if len(sides) != 2 or not all(_is_whole(side) and low <= side <= high for side in sides):
        raise UserError(f"size of streets must be two whole numbers from {low} to {high}, not {size!r}")
    return sides[0], sides[1]
