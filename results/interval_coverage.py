"""How often intervals over seeds and images cover the truth, on gains that vary from seed to seed and image to image.

Prints a table: the interval of losspool, and the quantiles of a nested bootstrap, which draws seeds, then images.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from losspool.lab.comparison import joint_interval

IMAGES, DRAWS, CONFIDENCE = 20, 400, 0.95
SEEDS, RATIOS = (2, 3, 5), (0.05, 0.2, 1.0, 5.0, 10.0, 25.0)
"""Numbers of seeds, and the variance of a mean gain over seeds divided by that over images."""
EFFECTS = ("normal", "skewed")
"""The distribution of what a seed and an image add to a gain: normal, or exponential with the same variance."""

Floats = NDArray[np.float64]


def nested(gains: Floats, random: np.random.Generator) -> tuple[float, float]:
    """Quantiles of the mean gain on draws of seeds and of images. ``gains`` has shape (S, IMAGES)."""
    seeds = random.integers(len(gains), size=(DRAWS, len(gains)))
    images = random.integers(IMAGES, size=(DRAWS, IMAGES))
    means = np.stack([gains[seed][:, image].mean() for seed, image in zip(seeds, images, strict=True)])
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def coverage(seeds: int, ratio: float, cases: int, effect: str = "normal") -> tuple[float, float]:
    """Shares of the cases in which the joint interval and the nested bootstrap cover the truth, which is 0."""
    random = np.random.default_rng([seeds, int(10 * ratio)])
    joint = bootstrap = 0
    for _ in range(cases):
        of_seeds, of_images = (
            random.normal(size=size) if effect == "normal" else random.exponential(size=size) - 1
            for size in ((seeds, 1), IMAGES)
        )
        gains = (seeds * ratio) ** 0.5 * of_seeds + IMAGES**0.5 * of_images
        resampled = gains.mean(0)[random.integers(IMAGES, size=(DRAWS, IMAGES))].mean(1)
        found = joint_interval(gains.mean(1), resampled, [IMAGES], CONFIDENCE)
        assert found is not None
        joint += found.low <= 0 <= found.high
        low, high = nested(gains, random)
        bootstrap += low <= 0 <= high
    return joint / cases, bootstrap / cases


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="made-up cases for each entry (default: 1000)")
    options = parser.parse_args(arguments)
    print("| effects | seeds | variance over seeds / over images | this interval | nested bootstrap |")
    print("|---|---:|---:|---:|---:|")
    for effect, seeds, ratio in product(EFFECTS, SEEDS, RATIOS):
        joint, bootstrap = coverage(seeds, ratio, options.cases, effect)
        print(f"| {effect} | {seeds} | {ratio:g} | {100 * joint:.1f} % | {100 * bootstrap:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
