"""Map the values in label files to 0 … C-1 and void."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.data.images import read_values, too_large
from losspool.segmentation.data.protocol import IGNORE, Pixels

Color = tuple[int, int, int]

_UNKNOWN = 254  # never a class: a dataset has at most 254
MOST_CLASSES = 254


class LabelDecoder:
    """Maps the values or colours of a file to labels. Unknown values raise an error that names the file."""

    def __init__(self, values: Mapping[int, int], colors: Mapping[Color, int] | None = None) -> None:
        """``values`` and ``colors`` map each allowed value and colour to its label, ``IGNORE`` for void."""
        self.key = repr((sorted(values.items()), sorted((colors or {}).items())))
        """Identifies the decoding; use it as part of a cache key."""
        self._by_value = np.full(1 << 16, _UNKNOWN, np.uint8)
        self._by_value[list(values)] = list(values.values())
        self._by_byte = self._by_value[:256].tobytes()
        packed = {_packed(np.array(color)).item(): label for color, label in (colors or {}).items()}
        self._colors = np.array(sorted(packed), np.uint32)
        self._by_color = np.array([packed[color] for color in sorted(packed)], np.uint8)

    def read(self, path: Path) -> Pixels:
        """Read the labels (H, W) of a file."""
        values = read_values(path)
        try:
            return self._from_colors(values, path) if values.ndim == 3 else self._from_values(values, path)
        except MemoryError:
            raise too_large(path) from None

    def _from_values(self, values: NDArray[np.unsignedinteger], path: Path) -> Pixels:
        # For bytes, translate and find take a fifth of NumPy's time. This matters: each crop decodes a whole frame.
        decoded = (
            values.tobytes().translate(self._by_byte) if values.itemsize == 1 else self._by_value[values].tobytes()
        )
        unknown = decoded.find(_UNKNOWN)
        if unknown >= 0:
            raise BrokenFileError(path, f"the label value {values.flat[unknown]} is neither a class id nor void")
        return np.frombuffer(decoded, np.uint8).reshape(values.shape)

    def _from_colors(self, values: NDArray[np.unsignedinteger], path: Path) -> Pixels:
        if not len(self._colors):
            raise BrokenFileError(path, "the label is a colour image, but this dataset uses index images")
        packed = _packed(values)
        place = np.minimum(np.searchsorted(self._colors, packed), len(self._colors) - 1)
        unknown = self._colors[place] != packed
        if unknown.any():
            color = tuple(int(channel) for channel in values[unknown][0])
            raise BrokenFileError(path, f"the colour {color} is neither a class colour nor void")
        return self._by_color[place]


def contiguous(count: int, void: int = IGNORE) -> LabelDecoder:
    """Return a decoder for files with values 0 … count-1 and ``void``."""
    return LabelDecoder({**{label: label for label in range(count)}, void: IGNORE})


def _packed(colors: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
    wide = colors.astype(np.uint32)
    return (wide[..., 0] * 256 + wide[..., 1]) * 256 + wide[..., 2]  # (..., 3) -> (...)
