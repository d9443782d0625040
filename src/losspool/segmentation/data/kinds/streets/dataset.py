"""The street scenes as a dataset: nothing on disk, any number of images, reproducible everywhere."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.classes import CLASSES, LOOKS
from losspool.segmentation.data.kinds.streets.compose import VERSION, Scene, scene
from losspool.segmentation.data.protocol import IGNORE, ClassInfo, Pixels

SCENE_COUNTS = {"train": 1000, "val": 100, "test": 200}
"""Default number of scenes per split."""
SPLITS = tuple(SCENE_COUNTS)

MOST = 1_000_000
"""Maximum number of scenes per split: names have six digits."""
SIDES = (32, 2048)
"""Minimum and maximum image side. Smaller images show nothing; larger ones take seconds to draw."""
FOCALS = (0.5, 4)
"""Minimum and maximum focal length, relative to the usual one. Beyond these, a scene is hardly a street."""
KEPT = 64 << 20
"""Bytes of cached scenes, at least one: a loader requests a scene's parts one after the other, and few scenes again."""


def splits() -> tuple[str, ...]:
    return SPLITS


def options(data: Any, split: str) -> dict[str, Any]:
    """Return a split's settings from the ``data`` section of a recipe; count and noise are the training split's."""
    train = {"count": data.streets_train, "noise": data.streets_noise} if split == "train" else {}
    return {"size": data.streets_size, "focal": data.streets_focal, **train}


class Streets:
    """Generated street scenes, deterministic in (seed, split, index, size, focal) and independent of ``count``.

    ``noise`` is the share of label blobs with a wrong class. Images and looks do not depend on it.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        seed: int = 0,
        size: tuple[int, int] = (256, 256),
        count: int | None = None,
        focal: float = 1.0,
        noise: float = 0.0,
    ) -> None:
        if split not in SPLITS:
            raise UserError(f"streets has the splits {', '.join(SPLITS)}, not {split!r}")
        if count is not None and not (_is_whole(count) and 1 <= count <= MOST):
            raise UserError(f"count of streets must be a whole number from 1 to {MOST}, not {count!r}")
        if not _is_whole(seed):
            raise UserError(f"seed of streets must be a whole number, not {seed!r}")
        if not (isinstance(focal, int | float) and FOCALS[0] <= focal <= FOCALS[1]):
            raise UserError(f"focal of streets must be a number from {FOCALS[0]} to {FOCALS[1]}, not {focal!r}")
        if not 0 <= noise <= 1:
            raise UserError(f"noise of streets must be from 0 to 1, not {noise!r}")
        self._split, self._seed, self._focal, self._noise = split, seed, float(focal), float(noise)
        self._size = _checked_size(size)
        self._count = SCENE_COUNTS[split] if count is None else count
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
        """Return the RGB image."""
        return Image.fromarray(self._scene(index).image)

    def label(self, index: int) -> Pixels:
        """Return the label (H, W), of the size of the image; read-only."""
        return self._scene(index).label

    @property
    def look_names(self) -> Sequence[str]:
        """The metric names of the looks: ``pedestrian/rare``."""
        return [look.key for look in LOOKS]

    def looks(self, index: int) -> Pixels:
        """Return (H, W), read-only: one plus the look's index in LOOKS, zero for classes without looks."""
        return self._scene(index).looks

    def fingerprint(self) -> str:
        """Hash everything that the labels depend on: version, seed, split, size, count, focal length and noise."""
        key: tuple[Any, ...] = ("streets", VERSION, self._seed, self._split, self._size, self._count)
        key += () if self._focal == 1 else (self._focal,)  # indices of the usual scenes stay valid
        key += ("noise", self._noise) if self._noise else ()
        return hashlib.sha256(repr(key).encode()).hexdigest()

    def _scene(self, index: int) -> Scene:
        if not 0 <= index < self._count:
            raise IndexError(f"{self.name} has {self._count} scenes: no index {index}")
        index = int(index)  # numpy integers have another repr and would give other random keys
        with self._lock:
            kept = self._kept.get(index)
        if kept is None:
            # Outside the lock: threads draw in parallel.
            kept = scene(self._seed, self._split, index, self._size, self._focal)
            if self._noise:
                dice = Dice("streets", self._seed, self._split, index, "noise")
                kept = kept._replace(label=with_wrong_blobs(kept.label, self._noise, len(CLASSES), dice))
            with self._lock:
                self._kept[index] = kept
                while len(self._kept) > max(KEPT // sum(part.nbytes for part in kept), 1):
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


def with_wrong_blobs(label: Pixels, share: float, num_classes: int, dice: Dice) -> Pixels:
    """Give each blob another class with probability ``share``. A blob is a connected region (by edges) of one class."""
    try:
        from scipy.ndimage import label as connected
    except ImportError:
        raise UserError("data.streets_noise needs scipy: pip install 'losspool[lab]'") from None
    noisy = label.copy()
    for number in np.unique(label[label != IGNORE]).tolist():
        blobs, count = connected(label == number)
        swapped = np.full(count + 1, number, label.dtype)
        for blob in range(1, count + 1):
            if dice.chance(share):
                other = dice.whole(0, num_classes - 2)
                swapped[blob] = other + (other >= number)
        noisy = np.where(blobs > 0, swapped[blobs], noisy)
    noisy.setflags(write=False)
    return noisy
