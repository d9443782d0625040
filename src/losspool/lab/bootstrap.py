"""Intervals over images: how far a gain would move on other footage of the same kind, with the same networks.

Images are drawn anew, with replacement, as often as there are; the ends of the interval are quantiles of the gains
on what was drawn. Neighbouring frames of a video are alike, so single frames are not drawn but blocks of them:

- A sequence is all images whose names are equal up to their last number, in the order of that number.
- It is cut into blocks of about ``BLOCK`` consecutive images, as equal in length as can be.
- Of each sequence as many blocks are drawn as it has. Sequences too short for two blocks are blocks of one common
  stratum: where every image is a sequence of its own, this is the plain bootstrap over images.

The blocks do not overlap, so that every image is drawn equally often; blocks that may begin anywhere would neglect the
ends of a sequence. With few blocks the usual quantiles lie too close together: the spread of what is drawn has n where
an unbiased one has n - 1, and its own error is neglected, for which Student's t allows. Quantiles further out make up
for both (T. Hesterberg, What teachers should know about the bootstrap, The American Statistician 69, 2015: the expanded
percentile interval). A class that is neither labelled nor predicted in what was drawn is left out of its mean IoU, as
:func:`losspool.segmentation.prediction.metrics.mean_iou` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from losspool.lab.image_counts import ImageCounts
from losspool.segmentation.prediction import iou_of_counts

BLOCK = 10
"""Images. CamVid's test labels are a second apart: ten are a stretch of road, after which the view is another one; and
its two sequences still make 23 blocks. Much longer ones would be too few to take quantiles from."""
RESAMPLES = 5000
SEED = 0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class ImageIntervals:
    """Of a gain in mIoU, and in the IoU of each class."""

    miou: Interval
    classes: tuple[Interval | None, ...]
    """None of a class that occurs in nothing that was drawn, or not under both methods."""
    images: int
    blocks: int
    """So many there are to draw from."""


def sequences(names: Sequence[str]) -> dict[str, list[int]]:
    """The places of the images of each sequence, in the order of their last number."""
    numbered: dict[str, list[tuple[int, int]]] = {}
    for place, name in enumerate(names):
        found = re.fullmatch(r"(.*?)(\d+)\D*", name, re.DOTALL)
        sequence, number = (found[1], int(found[2])) if found else (name, 0)
        numbered.setdefault(sequence, []).append((number, place))
    return {sequence: [place for _, place in sorted(images)] for sequence, images in numbered.items()}


def strata(names: Sequence[str]) -> list[list[list[int]]]:
    """Blocks of places; of each stratum as many blocks are drawn as it has."""
    found: list[list[list[int]]] = []
    short: list[list[int]] = []
    for images in sequences(names).values():
        blocks = [part.tolist() for part in np.array_split(images, max(round(len(images) / BLOCK), 1))]
        if len(blocks) > 1:
            found.append(blocks)
        else:
            short += blocks
    return [*found, short] if short else found


def image_intervals(
    ours: Sequence[Sequence[ImageCounts]], theirs: Sequence[Sequence[ImageCounts]], confidence: float
) -> ImageIntervals | None:
    """Of the mean gain of runs over runs, seed by seed; of each run the counts of the checkpoints that it is scored by.

    All are of the same images. None where there are too few blocks to draw from.
    """
    parts = strata(ours[0][0].names)
    sizes = [len(blocks) for blocks in parts]
    tail = tail_share(sizes, confidence)
    if tail is None:
        return None
    drawn = _draws(sizes)
    blocks = [block for stratum in parts for block in stratum]

    def scores(run: Sequence[ImageCounts]) -> tuple[Floats, Floats]:
        """(R,) and (R, C): mIoU and IoU of each resample, mean over the checkpoints."""
        found = [_resampled(drawn, np.stack([each.counts[block].sum(0) for block in blocks])) for each in run]
        return np.mean([_mean(ious, -1) for ious in found], axis=0), _mean(np.stack(found), 0)

    gains, class_gains = [], []
    for our, their in zip(ours, theirs, strict=True):
        (our_miou, our_ious), (their_miou, their_ious) = scores(our), scores(their)
        gains.append(our_miou - their_miou)
        class_gains.append(our_ious - their_ious)
    miou = _interval(np.mean(gains, axis=0), tail)
    classes = tuple(_interval(gain, tail) for gain in _mean(np.stack(class_gains), 0).T)
    return None if miou is None else ImageIntervals(miou, classes, len(ours[0][0].names), len(blocks))


def tail_share(sizes: Sequence[int], confidence: float) -> float | None:
    """What lies beyond each end of the interval, with strata of so many blocks; 2.5 % with very many.

    None where this is less than the furthest draw has, the best block of each stratum again and again: no quantile lies
    beyond it, so that the interval would be too short. With one stratum this takes five blocks.
    """
    varied = [size for size in sizes if size > 1]  # a single block is the same in every draw
    if not varied:
        return None
    blocks, free = sum(varied), sum(varied) - len(varied)
    share = float(norm.cdf(-student.ppf((1 + confidence) / 2, free) * math.sqrt(blocks / free)))
    return share if share > math.prod(float(size) ** -size for size in varied) else None


def _draws(sizes: Sequence[int]) -> Floats:
    """(R, blocks): how often each block was drawn."""
    # The old generator, because NumPy promises its numbers for good: published intervals must come out again.
    random = np.random.RandomState(SEED)
    rows = np.arange(RESAMPLES)[:, None]
    found = []
    for size in sizes:
        cells = rows * size + random.randint(size, size=(RESAMPLES, size))
        found.append(np.bincount(cells.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size))
    return np.concatenate(found, axis=1).astype(np.float64)


def _resampled(drawn: Floats, counts: NDArray[np.int64]) -> Floats:
    """(R, blocks) and (blocks, 3, C) -> (R, C): IoU. The sums are exact: whole numbers far below 2⁵³."""
    summed = drawn @ counts.reshape(len(counts), -1).astype(np.float64)
    return iou_of_counts(summed.reshape(len(drawn), *counts.shape[1:]))


def _mean(values: Floats, axis: int) -> Floats:
    """Over what is there: NaN is left out, and is the mean of nothing."""
    there = ~np.isnan(values)
    count = there.sum(axis)
    return np.divide(values.sum(axis, where=there), count, out=np.full(count.shape, np.nan), where=count > 0)


def _interval(gains: Floats, tail: float) -> Interval | None:
    """Between quantiles; resamples in which it is not defined are left out."""
    defined = gains[~np.isnan(gains)]
    if not len(defined):
        return None
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))
