"""The range of the values of images with more than 8 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import UserError, in_threads
from losspool.segmentation.data.files.images import is_deep, open_image

SAMPLE = 32
"""Images that a range is found from."""
_SUFFIXES = (".png", ".tif", ".tiff")  # the other formats have no more than 8 bits
_PER_IMAGE = 1 << 16  # values
_DIGITS = 6  # significant ones of the range: recipes and classes.yaml state it
_OUTLIERS = 0.1  # percent of the values at either end: hot and dead pixels


def found_intensity(paths: Sequence[Path]) -> tuple[float, float] | None:
    """The range of the deep images in a sample of the files, without outliers; None if all have 8 bits.

    Scientific cameras store 10, 12 or 14 bits in files of 16. A fixed range would show these as almost black.
    """
    candidates = [path for path in paths if path.suffix.lower() in _SUFFIXES]
    values = np.concatenate([np.zeros(0, np.float32), *in_threads(_deep_values, sample(candidates))])
    if not len(values):
        return None
    low, high = (float(value) for value in np.percentile(values, [_OUTLIERS, 100 - _OUTLIERS]))
    if not low < high:
        return low, low + 1.0  # one value everywhere: any range is as good
    # Relative to the range and not to its ends, which may lie close together.
    places = _DIGITS - 1 - math.floor(math.log10(high - low))
    return round(low, places), round(high, places)


def sample(paths: Sequence[Path]) -> list[Path]:
    """Files spread evenly over all."""
    places = np.linspace(0, max(len(paths) - 1, 0), min(len(paths), SAMPLE)).round().astype(int)
    return [paths[place] for place in places.tolist()]


def _deep_values(path: Path) -> NDArray[np.float32]:
    """Some finite values of an image; none if it has 8 bits or cannot be read, which is reported when it is used."""
    try:
        with open_image(path) as image:
            if not is_deep(image):
                return np.zeros(0, np.float32)
            values = np.asarray(image).astype(np.float32).ravel()
    except UserError:
        return np.zeros(0, np.float32)
    finite = values[np.isfinite(values)]
    return finite[:: max(len(finite) // _PER_IMAGE, 1)]
