"""Intervals over images: how far a gain would vary on other footage of the same kind, with the same networks.

Images are resampled with replacement. The ends of the interval are quantiles of the gains on the resamples.
Each image is drawn by itself, unless the data have groups, such as the images of a patient: then groups are drawn.
Neighbouring frames of a video are alike, so blocks of frames are drawn instead of single frames, and of other images
on request:

- A sequence is all images whose names are equal up to their last number, in the order of that number.
- It is cut into blocks of about ``BLOCK`` consecutive images, or as many as requested, of nearly equal length.
- Each sequence contributes as many blocks to a resample as it has. Sequences too short for two blocks are blocks of
  one common stratum: where every image is its own sequence, this is the plain bootstrap over images.

The blocks do not overlap, so every image is drawn equally often; blocks that begin anywhere would neglect the ends of
a sequence. With few blocks the usual quantiles lie too close together: a resample's variance divides by n instead of
n - 1, and the variance itself is uncertain, which Student's t accounts for. Quantiles further out correct both
(T. Hesterberg, What teachers should know about the bootstrap, The American Statistician 69, 2015: the expanded
percentile interval). A class that a resample neither labels nor predicts is left out of its mean IoU, as
:func:`losspool.segmentation.prediction.mean_of_present` does.

The joint interval covers retraining as well. Its variance is that of the gains over seeds plus that over resampled
images. Quantiles of a nested bootstrap would not do: the mean of three or five seeds drawn with replacement is never
far from their mean. So the ends are Student's, with the degrees of freedom of two variances (Satterthwaite, 1946).
With two or three seeds, which may be alike by chance, these cover too little: the interval over seeds is the least.
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

from losspool.lab.comparison.runs import ImageCounts
from losspool.segmentation.prediction import iou_of_counts, mean_without_nan

BLOCK = 10
"""Images. CamVid's test labels are a second apart: after ten, the view has changed, and its two sequences still make
23 blocks. Much longer blocks would be too few for quantiles."""
RESAMPLES = 5000
SEED = 0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class ImageIntervals:
    """Intervals of a gain in mIoU, and in the IoU of each class."""

    miou: Interval
    joint: Interval | None
    """Of the gain in mIoU, over seeds and images together; None with fewer than two seeds."""
    classes: tuple[Interval | None, ...]
    """None for a class that no resample has a score of under both methods."""
    images: int
    blocks: int
    """The number of blocks that are drawn from."""
    drawn: str
    """What a block is: image, group, or block of neighbouring images."""


def sequences(names: Sequence[str]) -> dict[str, list[int]]:
    """Indices of the images of each sequence, in the order of their last number."""
    numbered: dict[str, list[tuple[int, int]]] = {}
    for place, name in enumerate(names):
        found = re.fullmatch(r"(.*?)(\d+)\D*", name, re.DOTALL)
        sequence, number = (found[1], int(found[2])) if found else (name, 0)
        numbered.setdefault(sequence, []).append((number, place))
    return {sequence: [place for _, place in sorted(images)] for sequence, images in numbered.items()}


def strata(counts: ImageCounts) -> list[list[list[int]]]:
    """Blocks of image indices, by stratum. Each stratum contributes as many blocks to a resample as it has."""
    if counts.groups is not None:
        members: dict[str, list[int]] = {}
        for place, group in enumerate(counts.groups):
            members.setdefault(group, []).append(place)
        return [list(members.values())]
    size = _block_size(counts)
    return _strata_of_blocks(counts.names, size) if size > 1 else [[[place] for place in range(len(counts.names))]]


def _block_size(counts: ImageCounts) -> int:
    return counts.block or (BLOCK if counts.video else 1)


def _strata_of_blocks(names: Sequence[str], size: int) -> list[list[list[int]]]:
    found: list[list[list[int]]] = []
    short: list[list[int]] = []
    for images in sequences(names).values():
        blocks = [part.tolist() for part in np.array_split(images, max(round(len(images) / size), 1))]
        if len(blocks) > 1:
            found.append(blocks)
        else:
            short += blocks
    return [*found, short] if short else found


def image_intervals(
    ours: Sequence[Sequence[ImageCounts]], theirs: Sequence[Sequence[ImageCounts]], confidence: float
) -> ImageIntervals | str:
    """Intervals of the mean paired gain of ``ours`` over ``theirs``, or why there are none.

    Both are lists of runs by seed, each with the counts of its scored checkpoints, all on the same images.
    """
    first = ours[0][0]
    parts = strata(first)
    sizes = [len(blocks) for blocks in parts]
    alone = sum(sizes) == len(first.names)
    kind = "group" if first.groups is not None else "image" if alone else "block of neighbouring images"
    tail = tail_share(sizes, confidence)
    if tail is None:
        return f"{_plural(sum(sizes), kind)} cannot be resampled in enough ways; at least 5 are needed"
    drawn = _draws(sizes)
    blocks = [block for stratum in parts for block in stratum]

    def scores(run: Sequence[ImageCounts]) -> tuple[Floats, Floats]:
        """(R,) and (R, C): mIoU and IoU of each resample, mean over the checkpoints."""
        found = [_resampled(drawn, np.stack([each.counts[block].sum(0) for block in blocks])) for each in run]
        return np.mean([mean_without_nan(ious, -1) for ious in found], axis=0), mean_without_nan(np.stack(found), 0)

    gains, class_gains = [], []
    for our, their in zip(ours, theirs, strict=True):
        (our_miou, our_ious), (their_miou, their_ious) = scores(our), scores(their)
        gains.append(our_miou - their_miou)
        class_gains.append(our_ious - their_ious)
    miou = _interval(np.mean(gains, axis=0), tail)
    classes = tuple(_interval(gain, tail) for gain in mean_without_nan(np.stack(class_gains), 0).T)
    if miou is None:
        return "no resample has a labelled pixel"
    observed = [_gain_on_all(our, their) for our, their in zip(ours, theirs, strict=True)]
    joint = joint_interval(np.array(observed), np.mean(gains, axis=0), sizes, confidence)
    return ImageIntervals(miou, joint, classes, len(first.names), len(blocks), kind)


def joint_interval(observed: Floats, resampled: Floats, sizes: Sequence[int], confidence: float) -> Interval | None:
    """The interval of a mean gain over seeds and images, or None with fewer than two seeds.

    Args:
        observed: (S,), the gain of each seed on all images.
        resampled: (R,), the mean gain over seeds on each resample of the images.
        sizes: numbers of blocks by stratum, see :func:`tail_share`.
    """
    seeds, mean = len(observed), float(observed.mean())
    if seeds < 2:
        return None
    varied = [size for size in sizes if size > 1]
    blocks, free = sum(varied), sum(varied) - len(varied)
    of_seeds = float(observed.var(ddof=1)) / seeds
    of_images = float(resampled[~np.isnan(resampled)].var()) * blocks / free  # a resample's variance divides by n
    variance = of_seeds + of_images
    if not variance:
        return Interval(mean, mean)
    freedom = variance**2 / (of_seeds**2 / (seeds - 1) + of_images**2 / free)
    reach = max(_reach(variance, freedom, confidence), _reach(of_seeds, seeds - 1, confidence))
    return Interval(mean - reach, mean + reach)


def _reach(variance: float, freedom: float, confidence: float) -> float:
    return float(student.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)


def _gain_on_all(ours: Sequence[ImageCounts], theirs: Sequence[ImageCounts]) -> float:
    """The gain in mIoU of one seed, mean over its checkpoints."""
    scores = [
        [mean_without_nan(iou_of_counts(each.counts.sum(0).astype(np.float64)), -1) for each in run]
        for run in (ours, theirs)
    ]
    return float(np.mean(scores[0]) - np.mean(scores[1]))


def _plural(count: int, kind: str) -> str:
    first, _, rest = kind.partition(" ")
    return f"{count} {first}{'s' * (count != 1)}{' ' * bool(rest)}{rest}"


def tail_share(sizes: Sequence[int], confidence: float) -> float | None:
    """The share beyond each end of the interval, for strata of these numbers of blocks; 2.5 % with very many.

    None where this is less than the probability of the most extreme resample, one block of each stratum repeated: the
    interval would be too short. A single stratum needs five blocks.
    """
    varied = [size for size in sizes if size > 1]  # a single block is the same in every draw
    if not varied:
        return None
    blocks, free = sum(varied), sum(varied) - len(varied)
    share = float(norm.cdf(-student.ppf((1 + confidence) / 2, free) * math.sqrt(blocks / free)))
    return share if share > math.prod(float(size) ** -size for size in varied) else None


def _draws(sizes: Sequence[int]) -> Floats:
    """(R, blocks): how often each block was drawn."""
    # The legacy generator: NumPy guarantees its numbers forever, and published intervals must be reproducible.
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


def _interval(gains: Floats, tail: float) -> Interval | None:
    """Between quantiles, without the resamples where the gain is undefined."""
    defined = gains[~np.isnan(gains)]
    if not len(defined):
        return None
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))
