"""Counts near outlines and inside them.

Boundary IoU is the IoU of the pixels near the outlines of label and prediction (Cheng et al., CVPR 2021). A pixel of a
class belongs to its boundary region if a pixel of another class, or the edge of the image, is within d pixels: d is 2 %
of the image's diagonal, and the distance is the larger one of rows and columns. This is the authors'
``mask - erode(mask)`` with d erosions by a 3×3 square, for all classes at once.

Interior IoU is the IoU of the pixels that are more than ``INTERIOR_MARGIN`` pixels away from every outline of the label
and from the edge of the image. It does not depend on how generously outlines are drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.data import IGNORE, Pixels

BOUNDARY_RATIO = 0.02
"""The authors' share of the diagonal."""
INTERIOR_MARGIN = 3
"""Pixels beside an outline that do not count as inside."""
_OUTSIDE = 254  # neither a class nor void


def boundary_counts(prediction: Pixels, label: Pixels, classes: int) -> NDArray[np.int64]:
    """(3, C): hits, labelled and predicted pixels in the boundary regions of each class; void pixels do not count.

    The prediction takes the label's void first. Without that, void would give the label outlines that no prediction
    can have.
    """
    reach = max(round(BOUNDARY_RATIO * float(np.hypot(*label.shape))), 1)
    valid = label != IGNORE
    guess = np.where(valid, prediction, label)
    ours, theirs = (near_outline(each, reach) & valid for each in (guess, label))
    counted = (label[ours & theirs & (guess == label)], label[theirs], guess[ours])
    return np.stack([np.bincount(each, minlength=classes) for each in counted]).astype(np.int64)


def interior_counts(prediction: Pixels, label: Pixels, classes: int) -> NDArray[np.int64]:
    """(3, C): hits, labelled and predicted pixels inside the label's outlines; void pixels do not count."""
    inside = ~near_outline(label, INTERIOR_MARGIN) & (label != IGNORE)
    counted = (label[inside & (prediction == label)], label[inside], prediction[inside])
    return np.stack([np.bincount(each, minlength=classes) for each in counted]).astype(np.int64)


def near_outline(labels: Pixels, reach: int) -> NDArray[np.bool_]:
    """(H, W): whether the square of ``reach`` pixels around a pixel holds another value, or leaves the image."""
    padded = np.pad(labels, reach, constant_values=_OUTSIDE)
    spans = [_extreme(_extreme(padded, pick, reach).T, pick, reach).T for pick in (np.maximum, np.minimum)]
    different: NDArray[np.bool_] = spans[0] != spans[1]
    return different


def _extreme(values: Pixels, pick: np.ufunc, reach: int) -> Pixels:
    """(N, …) -> (N - 2·reach, …): the largest or smallest of 2·reach + 1 rows. The spans double: few operations."""
    width, span = 2 * reach + 1, 1
    while 2 * span <= width:
        values = pick(values[:-span], values[span:])
        span *= 2
    rest = width - span
    return pick(values[: len(values) - rest], values[rest:]) if rest else values


REGIONS: dict[str, Callable[[Pixels, Pixels, int], NDArray[np.int64]]] = {
    "boundary": boundary_counts,
    "interior": interior_counts,
}
"""Parts of an image that are counted by themselves."""
