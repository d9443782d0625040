"""Confusion and IoU against counts made pixel by pixel."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losspool.segmentation.prediction.metrics import confusion, iou, mean_iou


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
