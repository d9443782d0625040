"""The bootstrap over images again, slowly: every sum and every mean in plain Python, from the same draws."""

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np

from losspool.lab.comparison.bootstrap import RESAMPLES, SEED

T_975 = {
    1: 12.706205,
    2: 4.302653,
    3: 3.182446,
    4: 2.776445,
    5: 2.570582,
    6: 2.446912,
    8: 2.306004,
    9: 2.262157,
    21: 2.079614,
}
"""Student's quantiles, from a printed table, by degrees of freedom."""

LAB_BLOCKS = (
    (range(0, 9), range(9, 18), range(18, 26)),
    (range(26, 37), range(37, 48), range(48, 59), range(59, 70)),
)
"""Of ``lab_runs.IMAGES``: 26 and 44 images in 3 and 4 blocks."""


def plain_scores(counts, places):
    """IoU per class of these images (None where there is none) and their mean; counts are images × 3 × classes."""
    found = []
    for label in range(len(counts[0][0])):
        hits, labelled, predicted = (sum(int(counts[place][kind][label]) for place in places) for kind in (0, 1, 2))
        union = labelled + predicted - hits
        found.append(hits / union if union else None)
    return found, plain_mean(found)


def plain_mean(values):
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def plain_tail(blocks, strata=1):
    """Hesterberg's expanded percentiles: as far out as Student's t with a spread over n - 1 would be."""
    free = blocks - strata
    return NormalDist().cdf(-T_975[free] * (blocks / free) ** 0.5)


def plain_quantiles(values, tail):
    """With the usual straight line between two neighbours."""
    ordered = sorted(value for value in values if value is not None)
    ends = []
    for share in (tail, 1 - tail):
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        ends.append(ordered[below] + (place - below) * (ordered[above] - ordered[below]))
    return ends


def plain_intervals(ours, theirs, strata):
    """Of the mIoU and of each class; counts by seed and checkpoint, and the blocks of images of every stratum."""
    random = np.random.RandomState(SEED)
    draws = [random.randint(len(blocks), size=(RESAMPLES, len(blocks))).tolist() for blocks in strata]
    seen: dict = {}  # few blocks make few different draws
    gains = []
    for rows in zip(*draws, strict=True):
        drawn = tuple(tuple(sorted(row)) for row in rows)
        if drawn not in seen:
            chosen = [blocks[block] for blocks, row in zip(strata, drawn, strict=True) for block in row]
            seen[drawn] = _gains(ours, theirs, [place for block in chosen for place in block])
        gains.append(seen[drawn])
    tail = plain_tail(sum(len(blocks) for blocks in strata), len(strata))
    return [plain_quantiles(column, tail) for column in zip(*gains, strict=True)]


def _gains(ours, theirs, places):
    """Of the mIoU, then of each class: mean over seeds of the difference of means over checkpoints."""
    by_seed = []
    for pair in zip(ours, theirs, strict=True):
        sides = []
        for run in pair:
            scores = [plain_scores(counts, places) for counts in run]
            classes = zip(*(ious for ious, _ in scores), strict=True)
            sides.append([plain_mean([miou for _, miou in scores]), *map(plain_mean, classes)])
        by_seed.append([None if None in two else two[0] - two[1] for two in zip(*sides, strict=True)])
    return [plain_mean(column) for column in zip(*by_seed, strict=True)]


def stored_counts(run: Path):
    """Of a run's evaluation on test, by checkpoint: images × 3 × classes. The file itself, not our reader."""
    (path,) = run.glob("evaluation-test-*.json")
    return [
        [[line["hits"], line["labelled"], line["predicted"]] for line in entry["per_image"]]
        for entry in json.loads(path.read_text())["checkpoints"]
    ]
