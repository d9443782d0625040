"""Dice, precision and recall equal those of torchmetrics and MONAI."""

import pytest
import torch
from monai.metrics import DiceMetric
from torchmetrics.functional import classification

from guessed_labels import CLASSES, counted, guessed
from losspool.segmentation.prediction.metrics import class_metrics


def test_pooled_scores_equal_torchmetrics():
    labels, guesses = guessed(1, absent=(2,))
    found = class_metrics(counted(labels, guesses))
    options = {"num_classes": CLASSES, "average": "none", "ignore_index": 255}
    tensors = torch.from_numpy(guesses).long(), torch.from_numpy(labels).long()
    for name, theirs in (("dice", "f1_score"), ("precision", "precision"), ("recall", "recall")):
        expected = getattr(classification, f"multiclass_{theirs}")(*tensors, **options)
        assert found[name] == pytest.approx(expected.numpy(), abs=1e-6)


def test_dice_per_image_equals_monai():
    """Every class is in every label: of one that is not, MONAI leaves out the image even where it is predicted."""
    labels, guesses = guessed(2, void=False)

    def one_hot(values):
        return torch.nn.functional.one_hot(torch.from_numpy(values).long(), CLASSES).movedim(-1, 1)

    metric = DiceMetric(include_background=True, reduction="mean_batch")
    metric(one_hot(guesses), one_hot(labels))
    found = class_metrics(counted(labels, guesses))["image_dice"]
    assert found == pytest.approx(metric.aggregate().numpy(), abs=1e-6)
