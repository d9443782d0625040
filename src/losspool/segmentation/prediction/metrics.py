"""Confusion matrices and what follows from them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.data import IGNORE

Number = TypeVar("Number", np.int64, np.float64)

_BLOCK = 1 << 18
"""Pixels counted at once: temporaries of 2 MB stay in the cache, those of a whole image would outweigh its logits."""


def confusion(prediction: Tensor, target: Tensor, classes: int, ignore: int = IGNORE) -> Tensor:
    """(C, C) int64: row = label, column = prediction, void left out. Never makes an accelerator wait.

    Exact for every number of pixels, and an integer sum is the same in any order.
    """
    if prediction.shape != target.shape:
        raise ValueError(f"a prediction of {tuple(prediction.shape)} for labels of {tuple(target.shape)}")
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=target.device)
    one = torch.ones(1, dtype=torch.int64, device=target.device)
    blocks = zip(prediction.flatten().split(_BLOCK), target.flatten().split(_BLOCK), strict=True)
    for guesses, labels in blocks:
        # Void goes to one cell more, which is cut off: selecting by a mask would make the host look.
        cell = torch.where(labels != ignore, labels.long() * classes + guesses.long(), classes * classes)
        counts.scatter_add_(0, cell, one.expand_as(cell))
    return counts[:-1].view(classes, classes)


def class_counts(matrix: NDArray[Number]) -> NDArray[Number]:
    """(C, C) -> (3, C): the hits of each class, its labelled pixels and its predicted ones. All that IoU needs."""
    return np.stack([np.diagonal(matrix), matrix.sum(1), matrix.sum(0)])


def iou_of_counts(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…, 3, C) -> (…, C): intersection over union; NaN where a class is neither labelled nor predicted."""
    hits, labelled, predicted = np.moveaxis(counts, -2, 0)
    union = labelled + predicted - hits
    return np.divide(hits, union, out=np.full(union.shape, np.nan), where=union > 0)


def iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """(C,): of each class, see :func:`iou_of_counts`."""
    return iou_of_counts(class_counts(matrix.astype(np.float64)))


def mean_iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """The mean over the classes that occur; NaN if none does."""
    return mean_of_present(iou(matrix))


def mean_of_present(ious: NDArray[np.float64]) -> float:
    """(C,): the mean over the classes that occur; NaN if none does."""
    return float(ious[~np.isnan(ious)].mean()) if not np.isnan(ious).all() else float("nan")
