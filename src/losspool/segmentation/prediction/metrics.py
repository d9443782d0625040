"""Confusion matrices, and the scores computed from them: IoU, Dice, precision and recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.data import IGNORE

Number = TypeVar("Number", np.int64, np.float64)

_BLOCK = 1 << 18
"""Pixels counted at once. Temporaries of 2 MB stay in the cache; a whole image's would need more than its logits."""


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
    return ratio(hits, labelled + predicted - hits)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """part/whole; NaN where ``whole`` is 0. ``part`` has the shape of the result."""
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)


METRICS = {
    "dice": "Dice",
    "precision": "precision",
    "recall": "recall",
    "image_iou": "IoU per image",
    "image_dice": "Dice per image",
    "boundary_iou": "boundary IoU",
    "interior_iou": "interior IoU",
}
"""Scores other than the IoU, with their human-readable names."""


def class_metrics(
    counts: NDArray[np.integer], regions: Mapping[str, NDArray[np.integer]] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Scores of each class by the keys of ``METRICS``, from counts of single images (N, 3, C); NaN as for the IoU.

    Precision and recall are 0 for a class that is only labelled, or only predicted. A score per image is the mean over
    the images in which a class is labelled or predicted. ``regions`` are counts in parts of the images by name; each
    adds a score, such as ``boundary_iou``.
    """
    single = counts.astype(np.float64, order="C")  # sums of another layout end in other digits
    total = single.sum(0)
    hits, labelled, predicted = total
    found = {
        "dice": _dice(total),
        "precision": _share(hits, predicted, labelled + predicted),
        "recall": _share(hits, labelled, labelled + predicted),
        "image_iou": mean_without_nan(iou_of_counts(single), 0),
        "image_dice": mean_without_nan(_dice(single), 0),
    }
    for region, own in (regions or {}).items():
        found[f"{region}_iou"] = iou_of_counts(own.sum(0).astype(np.float64))
    return found


def _dice(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    hits, labelled, predicted = np.moveaxis(counts, -2, 0)
    return ratio(2 * hits, labelled + predicted)


def _share(part: NDArray[np.float64], whole: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """part/whole; 0 where ``whole`` is 0, and NaN where ``there`` is."""
    return np.divide(part, whole, out=np.where(there > 0, 0.0, np.nan), where=whole > 0)


def mean_without_nan(scores: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """The mean over an axis without NaN; NaN where there is nothing else."""
    there = ~np.isnan(scores)
    return ratio(scores.sum(axis, where=there), there.sum(axis))


def none_if_nan(value: float) -> float | None:
    """A score for JSON and tables."""
    return None if np.isnan(value) else float(value)


def iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """(C,): the IoU of each class; see :func:`iou_of_counts`."""
    return iou_of_counts(class_counts(matrix.astype(np.float64)))


def shares_of_labels(matrix: NDArray[np.integer]) -> NDArray[np.float64]:
    """(C, C): the confusion matrix as shares of each class's labelled pixels; NaN for a class without any."""
    return ratio(matrix, matrix.sum(1, keepdims=True))


def mean_iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """Mean IoU over the classes that occur; NaN if none does."""
    return mean_of_present(iou(matrix))


def mean_of_present(ious: NDArray[np.float64]) -> float:
    """Mean of IoUs (C,) over the classes that occur, which are not NaN; NaN if none does."""
    return float(ious[~np.isnan(ious)].mean()) if not np.isnan(ious).all() else float("nan")
