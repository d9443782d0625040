"""The dataset protocol: everything that the rest of the system needs from a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from reprlib import repr as short  # file contents may be arbitrarily long
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.base import UserError

Pixels = NDArray[np.uint8]

IGNORE = 255
"""The label of void pixels in decoded labels, whatever value the files use."""
LARGEST_ID = 65535
"""The largest value that label files may use."""


@dataclass(frozen=True)
class ClassInfo:
    """The name and display colour of a class."""

    name: str
    color: tuple[int, int, int]
    id: int | None = field(default=None, compare=False, repr=False)  # caches of label statistics hash the repr
    """Its value in label files; None if that is its place among the classes."""

    @classmethod
    def of(cls, entry: Any) -> ClassInfo:
        """Build from file content. Raises ValueError if ``entry`` is not a class."""
        try:
            name, (red, green, blue) = entry["name"], entry["color"]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{short(entry)} is not a class with a name and a colour") from None
        if not all(isinstance(channel, int) and 0 <= channel <= 255 for channel in (red, green, blue)):
            raise ValueError(f"{short(entry['color'])} is not a colour")
        value = entry.get("id")
        if value is not None and (type(value) is not int or not 0 <= value <= LARGEST_ID):
            raise ValueError(f"{short(value)} is not a label value")
        return cls(str(name), (red, green, blue), value)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that :meth:`of` reads."""
        return {"name": self.name, "color": list(self.color), **({} if self.id is None else {"id": self.id})}


class Dataset(Protocol):
    """Images and labels by index. The order depends only on the data.

    Decoded labels hold ``0 … len(classes) - 1``, and ``IGNORE`` for void pixels. Reading is thread-safe. It raises
    ``BrokenFileError`` with the file's name if the file is at fault, and a plain ``UserError`` if the machine is.
    """

    @property
    def name(self) -> str:
        """Dataset name and split for display: ``camvid/train``."""

    @property
    def classes(self) -> Sequence[ClassInfo]:
        """The classes in label order."""

    @property
    def names(self) -> Sequence[str]:
        """One unique, stable name per image: the file path below the split, without suffix."""

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """Return the decoded RGB image. A Pillow image can resample a crop without copying the whole image first."""

    def label(self, index: int) -> Pixels:
        """Return the label (H, W), of the size of the image; read-only."""

    def fingerprint(self) -> str:
        """Return a key that changes whenever any label may have changed; caches of label statistics use it."""


@runtime_checkable
class HasLooks(Protocol):
    """Optional extension of :class:`Dataset` for classes with several looks, each scored by its recall.

    Evaluations of a dataset with looks include ``recall_per_look``. The generated streets have looks: the recall of a
    rare look measures how a method handles imbalance within a class.
    """

    @property
    def look_names(self) -> Sequence[str]:
        """One name per look."""

    def looks(self, index: int) -> Pixels:
        """Return (H, W): one plus the look's index in ``look_names``, 0 for pixels without a look."""


@runtime_checkable
class HasFiles(Protocol):
    """Optional extension of :class:`Dataset` for images and labels in files."""

    @property
    def pairs(self) -> Sequence[Any]:
        """Per image, the paths of its file and of its label's: ``image`` and ``label``."""


def check_classes(known: Sequence[ClassInfo], dataset: Dataset) -> None:
    """Raise unless the data has the classes that the network was trained on, in the same order."""
    network, found = ([info.name for info in classes] for classes in (known, dataset.classes))
    if network != found:
        raise UserError(f"{dataset.name}: its classes are {', '.join(found)}, the network's are {', '.join(network)}")
