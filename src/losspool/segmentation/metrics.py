"""Confusion matrices and what follows from them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.data.protocol import IGNORE


def confusion(prediction: Tensor, target: Tensor, classes: int, ignore: int = IGNORE) -> Tensor:
    """(C, C) int64: row = label, column = prediction, void left out. Never makes an accelerator wait.

    Exact for every number of pixels, and an integer sum is the same in any order.
    """
    valid = target != ignore
    # Void goes to one cell more, which is cut off: selecting by a mask would make the host look.
    cell = torch.where(valid, target.long() * classes + prediction.long(), classes * classes).flatten()
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=target.device)
    counts.scatter_add_(0, cell, torch.ones_like(cell))
    return counts[:-1].view(classes, classes)


def iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """(C,): intersection over union per class; NaN where a class is neither labelled nor predicted."""
    counts = matrix.astype(np.float64)
    intersection = np.diagonal(counts)
    union = counts.sum(0) + counts.sum(1) - intersection
    return np.divide(intersection, union, out=np.full(len(counts), np.nan), where=union > 0)


def mean_iou(matrix: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """The mean over the classes that occur; NaN if none does."""
    scores = iou(matrix)
    return float(scores[~np.isnan(scores)].mean()) if not np.isnan(scores).all() else float("nan")
