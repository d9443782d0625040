"""What every dataset offers, and all that the rest of the system asks of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as short  # what a file holds may be endless
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.base import UserError

Pixels = NDArray[np.uint8]

IGNORE = 255
"""The label of void pixels in every decoded label, whatever the files say."""


@dataclass(frozen=True)
class ClassInfo:
    """A class as people see it: its name, and its colour in pictures."""

    name: str
    color: tuple[int, int, int]

    @classmethod
    def of(cls, entry: Any) -> ClassInfo:
        """From what a file holds, which may be anything: a ValueError if it is no class."""
        try:
            name, (red, green, blue) = entry["name"], entry["color"]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{short(entry)} is no class with a name and a colour") from None
        if not all(isinstance(channel, int) and 0 <= channel <= 255 for channel in (red, green, blue)):
            raise ValueError(f"{short(entry['color'])} is no colour")
        return cls(str(name), (red, green, blue))

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`of` reads."""
        return {"name": self.name, "color": list(self.color)}


class Dataset(Protocol):
    """Images with labels, by index, in an order that depends on the data alone.

    Decoded labels hold ``0 … len(classes) - 1``, and ``IGNORE`` where a pixel is void. Reading is thread-safe. It
    raises ``BrokenFileError`` with the file's name, or a plain ``UserError`` where the machine is at fault.
    """

    @property
    def name(self) -> str:
        """The dataset's name and split, for people: ``camvid/train``."""

    @property
    def classes(self) -> Sequence[ClassInfo]:
        """The classes, in the order of their labels."""

    @property
    def names(self) -> Sequence[str]:
        """One name per image, unique, stable: the file's path below the split, without suffix."""

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """RGB, decoded. A Pillow image, because a crop of it can be resampled without copying all of it first."""

    def label(self, index: int) -> Pixels:
        """(H, W), the size of the image, read-only."""

    def fingerprint(self) -> str:
        """Changes when any label may have changed; a cache made from the labels is kept under it."""


@runtime_checkable
class HasLooks(Protocol):
    """An optional part of :class:`Dataset`: some classes come in several looks, and each is scored by its recall.

    Evaluations of such a dataset hold ``recall_per_look``. Generated streets have looks: a rare one of a class shows
    how a method does on the imbalance within the class.
    """

    @property
    def look_names(self) -> Sequence[str]:
        """One name per look."""

    def looks(self, index: int) -> Pixels:
        """(H, W): one plus the look's place in ``look_names``, 0 where a pixel has no look."""


def check_classes(known: Sequence[ClassInfo], dataset: Dataset) -> None:
    """The data must have the classes that the network was trained on, in the same order."""
    network, found = ([info.name for info in classes] for classes in (known, dataset.classes))
    if network != found:
        raise UserError(f"{dataset.name}: its classes are {', '.join(found)}, the network's are {', '.join(network)}")
