"""Made-up labels with predictions that are partly right, for the tests of scores."""

import numpy as np
import torch

from losspool.segmentation.prediction.metrics import class_counts, confusion

CLASSES = 4


def guessed(seed, absent=(), void=True):
    """Labels and predictions of five images of 12×15; no label is a class of ``absent``."""
    random = np.random.default_rng(seed)
    labels = random.choice([each for each in range(CLASSES) if each not in absent], (5, 12, 15)).astype(np.uint8)
    guesses = np.where(random.random(labels.shape) < 0.6, labels, random.integers(0, CLASSES, labels.shape))
    if void:
        labels[random.random(labels.shape) < 0.1] = 255
    return labels, guesses.astype(np.uint8)


def counted(labels, guesses):
    """The counts of each image: (images, 3, classes)."""
    pairs = zip(guesses, labels, strict=True)
    matrices = [confusion(torch.from_numpy(guess), torch.from_numpy(label), CLASSES).numpy() for guess, label in pairs]
    return np.stack([class_counts(matrix) for matrix in matrices])
