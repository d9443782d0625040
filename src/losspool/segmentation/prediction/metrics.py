"""Confusion matrices, the scores computed from them (IoU, Dice, precision and recall), and pixels near outlines."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.data import IGNORE, Pixels

Number = TypeVar("Number", np.int64, np.float64)

_BLOCK = 1 << 18
"""Pixels counted at once. Temporaries of 2 MB stay in the cache; a whole image's would need more than its logits."""

_BOUNDARY = 0.02
"""Width of the boundary region, as a share of the diagonal."""
_OUTSIDE = 254  # neither a class nor void


def confusion(prediction: Tensor, target: Tensor, classes: int, ignore: int = IGNORE) -> Tensor:
    """(C, C) int64: row = label, column = prediction, without void pixels. Does not synchronize with the accelerator.

    The counts are exact for any number of pixels, and integer sums do not depend on their order.
    """
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction and target must have the same shape, got {tuple(prediction.shape)} and {tuple(target.shape)}"
        )
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=target.device)
    one = torch.ones(1, dtype=torch.int64, device=target.device)
    blocks = zip(prediction.flatten().split(_BLOCK), target.flatten().split(_BLOCK), strict=True)
    for guesses, labels in blocks:
        # Void pixels go to an extra cell, which is dropped: indexing with a mask would synchronize with the host.
        cell = torch.where(labels != ignore, labels.long() * classes + guesses.long(), classes * classes)
        counts.scatter_add_(0, cell, one.expand_as(cell))
    return counts[:-1].view(classes, classes)


def class_counts(matrix: NDArray[Number]) -> NDArray[Number]:
    """(C, C) -> (3, C): each class's hits, labelled pixels and predicted pixels. IoU needs nothing else."""
    return np.stack([np.diagonal(matrix), matrix.sum(1), matrix.sum(0)])


def iou_of_counts(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…, 3, C) -> (…, C): intersection over union; NaN where a class is neither labelled nor predicted."""
    hits, labelled, predicted = np.moveaxis(counts, -2, 0)
    union = labelled + predicted - hits
    return np.divide(hits, union, out=np.full(union.shape, np.nan), where=union > 0)


METRICS = {
    "dice": "Dice",
    "precision": "precision",
    "recall": "recall",
    "image_iou": "IoU per image",
    "image_dice": "Dice per image",
    "boundary_iou": "boundary IoU",
}
"""Scores beside the IoU, with their names for people."""


def class_metrics(
    counts: NDArray[np.integer], boundary: NDArray[np.integer] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Scores of each class by the keys of ``METRICS``, from counts of single images (N, 3, C); NaN as for the IoU.

    Precision and recall are 0 for a class that is only labelled, or only predicted. A score per image is the mean over
    the images in which a class is labelled or predicted. ``boundary`` counts pixels near outlines alone; without it
    there is no boundary IoU.
    """
    single = counts.astype(np.float64, order="C")  # sums of another layout end in other digits
    total = single.sum(0)
    hits, labelled, predicted = total
    found = {
        "dice": _dice(total),
        "precision": _share(hits, predicted, labelled + predicted),
        "recall": _share(hits, labelled, labelled + predicted),
        "image_iou": mean_over_images(iou_of_counts(single)),
        "image_dice": mean_over_images(_dice(single)),
    }
    return found if boundary is None else {**found, "boundary_iou": iou_of_counts(boundary.sum(0).astype(np.float64))}


def _dice(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    hits, labelled, predicted = np.moveaxis(counts, -2, 0)
    return _share(2 * hits, labelled + predicted, labelled + predicted)


def _share(part: NDArray[np.float64], whole: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """part/whole; 0 where ``whole`` is 0, and NaN where ``there`` is."""
    return np.divide(part, whole, out=np.where(there > 0, 0.0, np.nan), where=whole > 0)


def mean_over_images(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, C) -> (C,): the mean without NaN; NaN where there is nothing else."""
    there = ~np.isnan(scores)
    count = there.sum(0)
    return np.divide(scores.sum(0, where=there), count, out=np.full(count.shape, np.nan), where=count > 0)


def iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """(C,): the IoU of each class; see :func:`iou_of_counts`."""
    return iou_of_counts(class_counts(matrix.astype(np.float64)))


def shares_of_labels(matrix: NDArray[np.integer]) -> NDArray[np.float64]:
    """(C, C): the confusion matrix as shares of each class's labelled pixels; NaN for a class without any."""
    labelled = matrix.sum(1, keepdims=True).repeat(len(matrix), 1)
    return np.divide(matrix, labelled, out=np.full(matrix.shape, np.nan), where=labelled > 0)


def mean_iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """Mean IoU over the classes that occur; NaN if none does."""
    return mean_of_present(iou(matrix))


def mean_of_present(ious: NDArray[np.float64]) -> float:
    """Mean of IoUs (C,) over the classes that occur, which are not NaN; NaN if none does."""
    return float(ious[~np.isnan(ious)].mean()) if not np.isnan(ious).all() else float("nan")


def boundary_counts(prediction: Pixels, label: Pixels, classes: int) -> NDArray[np.int64]:
    """(3, C): hits, labelled and predicted pixels in the boundary regions of each class; void pixels do not count.

    Boundary IoU is the IoU of these (Cheng et al., CVPR 2021). A pixel of a class belongs to its boundary region if a
    pixel of another class, or the edge of the image, is within d pixels: d is 2 % of the image's diagonal, and the
    distance is the larger one of rows and columns. This is the authors' ``mask - erode(mask)`` with d erosions by a 3×3
    square, for all classes at once.

    The prediction takes the label's void first. Without that, void would give the label outlines that no prediction
    can have.
    """
    reach = max(round(_BOUNDARY * float(np.hypot(*label.shape))), 1)
    valid = label != IGNORE
    guess = np.where(valid, prediction, label)
    ours, theirs = (near_outline(each, reach) & valid for each in (guess, label))
    counted = (label[ours & theirs & (guess == label)], label[theirs], guess[ours])
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
