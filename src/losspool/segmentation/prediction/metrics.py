"""Confusion matrices, and the IoU computed from them."""

from __future__ import annotations

from typing import TypeVar

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
    union = labelled + predicted - hits
    return np.divide(hits, union, out=np.full(union.shape, np.nan), where=union > 0)


def iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """(C,): the IoU of each class; see :func:`iou_of_counts`."""
    return iou_of_counts(class_counts(matrix.astype(np.float64)))


def mean_iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """Mean IoU over the classes that occur; NaN if none does."""
    return mean_of_present(iou(matrix))


def mean_of_present(ious: NDArray[np.float64]) -> float:
    """Mean of IoUs (C,) over the classes that occur, which are not NaN; NaN if none does."""
    return float(ious[~np.isnan(ious)].mean()) if not np.isnan(ious).all() else float("nan")
