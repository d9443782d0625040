"""A small Cityscapes: generated frames in its layout, every id of its label files among them."""

from pathlib import Path

import numpy as np

from small_data import save
from trained_runs import random_image

IDS = range(34)
"""What labelIds files hold, void and classes that are not scored included."""


def write_cityscapes(root: Path, split: str = "val", count: int = 3, size: tuple[int, int] = (48, 96)) -> Path:
    for number in range(count):
        random = np.random.default_rng(number)
        city = ("aachen", "zurich")[number % 2]
        stem = f"{city}/{city}_{number:06}_{7 * number:06}"
        label = np.kron(random.choice(IDS, (size[0] // 6, size[1] // 6)), np.ones((6, 6), int))
        save(root / "leftImg8bit" / split / f"{stem}_leftImg8bit.png", random_image(*size, seed=number))
        save(root / "gtFine" / split / f"{stem}_gtFine_labelIds.png", label)
    return root


def official_scores(root: Path, predictions: Path, split: str = "val") -> tuple[dict[str, float], float]:
    """IoU by class and their mean, by cityscapesscripts, from the files on disk."""
    import pytest

    script = pytest.importorskip(
        "cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling", reason="cityscapesscripts is not installed"
    )
    arguments = script.args
    arguments.predictionPath, arguments.predictionWalk = str(predictions), None
    arguments.evalInstLevelScore, arguments.quiet, arguments.JSONOutput = False, True, False
    labels = sorted(map(str, root.glob(f"gtFine/{split}/*/*_gtFine_labelIds.png")))
    found = script.evaluateImgLists([script.getPrediction(arguments, label) for label in labels], labels, arguments)
    return found["classScores"], found["averageScoreClasses"]
