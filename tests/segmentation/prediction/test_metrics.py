"""Confusion, IoU and the other scores against counts made pixel by pixel."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guessed_labels import CLASSES, counted, guessed
from losspool.segmentation.prediction.metrics import class_metrics, confusion, iou, mean_iou, shares_of_labels
from losspool.segmentation.prediction.regions import INTERIOR_MARGIN, boundary_counts, interior_counts


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 60), st.integers(0, 2**31))
def test_confusion_counts_pixels(classes, pixels, seed):
    random = np.random.default_rng(seed)
    target = random.choice([*range(classes), 255], pixels)
    prediction = random.integers(0, classes, pixels)
    expected = np.zeros((classes, classes), int)
    for label, guess in zip(target, prediction, strict=True):
        if label != 255:
            expected[label, guess] += 1
    counts = confusion(torch.from_numpy(prediction), torch.from_numpy(target.astype(np.uint8)), classes)
    assert counts.dtype == torch.int64
    assert counts.tolist() == expected.tolist()
    for label, score in enumerate(iou(counts.numpy())):
        labelled, guessed = (target == label), (prediction == label) & (target != 255)
        union = (labelled | guessed).sum()
        assert math.isnan(score) if union == 0 else score == (labelled & guessed).sum() / union


def test_the_mean_leaves_out_classes_that_do_not_occur():
    matrix = np.array([[2, 2, 0], [0, 4, 0], [0, 0, 0]])
    assert mean_iou(matrix) == (2 / 4 + 4 / 6) / 2
    assert math.isnan(mean_iou(np.zeros((3, 3))))


def plain_mean(values):
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def test_every_score_is_its_definition():
    """Class 3 is predicted and never labelled."""
    labels, guesses = guessed(0, absent=(3,))
    found = class_metrics(counted(labels, guesses))
    valid = labels != 255
    for each in range(CLASSES):
        truth, guess = labels == each, (guesses == each) & valid
        both = (truth & guess).sum()
        assert found["dice"][each] == 2 * both / (truth.sum() + guess.sum())
        assert found["precision"][each] == both / guess.sum()
        assert found["recall"][each] == (both / truth.sum() if truth.any() else 0)
        ious, dices = [], []
        for one, other in zip(truth, guess, strict=True):
            union = (one | other).sum()
            ious.append((one & other).sum() / union if union else None)
            dices.append(2 * (one & other).sum() / (one.sum() + other.sum()) if union else None)
        assert found["image_iou"][each] == pytest.approx(plain_mean(ious))
        assert found["image_dice"][each] == pytest.approx(plain_mean(dices))
    assert found["recall"][3] == 0


def test_a_class_that_does_not_occur_has_no_score():
    counts = np.array([[[1, 0, 0], [2, 3, 0], [1, 0, 0]], [[0, 0, 0], [0, 1, 0], [1, 0, 0]]])  # (images, 3, classes)
    found = class_metrics(counts)
    assert all(np.isnan(scores[2]) for scores in found.values())
    assert all(scores[1] == 0 for scores in found.values())  # labelled, never predicted
    assert found["image_iou"][0] == (1 / 2 + 0) / 2


def test_the_confusion_matrix_as_shares():
    matrix = np.array([[3, 1, 0], [0, 0, 0], [2, 2, 4]])
    assert shares_of_labels(matrix)[[0, 2]].tolist() == [[0.75, 0.25, 0], [0.25, 0.25, 0.5]]
    assert np.isnan(shares_of_labels(matrix)[1]).all()


def eroded(mask, times):
    """``times`` erosions by a 3×3 square, outside of the image nothing."""
    for _ in range(times):
        padded = np.pad(mask, 1)
        height, width = mask.shape
        shifts = [padded[row : row + height, column : column + width] for row in range(3) for column in range(3)]
        mask = np.logical_and.reduce(shifts)
    return mask


@pytest.mark.parametrize(("height", "width", "times"), [(20, 31, 1), (90, 120, 3), (7, 260, 5), (1, 1, 1)])
def test_boundary_iou_is_its_authors(height, width, times):
    """mask - erode(mask), class by class, with as many erosions as 2 % of the diagonal has pixels."""
    random = np.random.default_rng(height)
    cells = random.integers(0, CLASSES, (height // 10 + 1, width // 10 + 1))
    labels = np.kron(cells, np.ones((10, 10)))[:height, :width].astype(np.uint8)
    guesses = np.roll(labels, (2, 1), (0, 1))
    labels[height // 2 : height // 2 + 3, : width // 3] = 255
    found = boundary_counts(guesses, labels, CLASSES)
    valid = labels != 255
    for each in range(CLASSES):
        truth, guess = labels == each, (guesses == each) & valid
        outlines = [mask & ~eroded(mask, times) for mask in (truth, guess)]
        expected = [(outlines[0] & outlines[1]).sum(), outlines[0].sum(), outlines[1].sum()]
        assert found[:, each].tolist() == expected
    assert found.sum() > 0


def test_a_perfect_prediction_has_a_boundary_iou_of_one():
    labels = np.zeros((40, 40), np.uint8)
    labels[10:30, 5:20], labels[25:, 25:] = 1, 255
    hits, labelled, predicted = boundary_counts(np.where(labels == 255, 0, labels).astype(np.uint8), labels, 2)
    assert hits.tolist() == labelled.tolist() == predicted.tolist()
    assert (hits < [(labels == each).sum() for each in (0, 1)]).all()


def test_interior_counts_are_of_pixels_away_from_every_outline_of_the_label():
    """Each class eroded by itself; the prediction's own outlines do not matter."""
    random = np.random.default_rng(0)
    labels = np.kron(random.integers(0, CLASSES, (4, 5)), np.ones((12, 12))).astype(np.uint8)
    labels[20:24, :30] = 255
    guesses = random.integers(0, CLASSES, labels.shape).astype(np.uint8)
    inside = np.logical_or.reduce([eroded(labels == each, INTERIOR_MARGIN) for each in range(CLASSES)])
    found = interior_counts(guesses, labels, CLASSES)
    for each in range(CLASSES):
        truth, guess = (labels == each) & inside, (guesses == each) & inside
        assert found[:, each].tolist() == [(truth & guess).sum(), truth.sum(), guess.sum()]
    assert found.sum() > 0
