"""Class weights and logit adjustment against their authors' formulas."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from loss_batches import index_of, small_batch, small_index
from losspool.segmentation.base import UserError
from losspool.segmentation.losses import LOSSES, Criterion, LossConfig
from losspool.segmentation.losses.class_weights import balancing_weights, logit_offsets

SHARES = np.array([180, 20, 0, 50]) / 250


def formula(rule):
    """Up to a factor; class 2 is nowhere."""
    return {
        "inverse": [250 / 180, 250 / 20, 0, 250 / 50],
        "median": [0.25 / 0.6, 0.25 / 0.2, 0, 0.25 / 0.25],
        "effective": [0.1 / (1 - 0.9**180), 0.1 / (1 - 0.9**20), 0, 0.1 / (1 - 0.9**50)],
        (4, 3, 2, 1): [4, 3, 2, 1],
    }[rule]


@pytest.mark.parametrize("rule", ["inverse", "median", "effective", (4, 3, 2, 1)])
def test_weights_have_a_mean_of_1_over_the_training_pixels(rule):
    weights = balancing_weights(LossConfig(class_weights=rule, effective_beta=0.9), small_index())
    assert (weights * SHARES).sum() == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(weights, np.array(formula(rule)) / (formula(rule) * SHARES).sum(), rtol=1e-12)


def test_the_effective_number_spans_from_no_weights_to_inverse_frequency():
    def weights(beta):
        return balancing_weights(LossConfig(class_weights="effective", effective_beta=beta), small_index())

    np.testing.assert_allclose(weights(0), [1, 1, 0, 1])
    inverse = balancing_weights(LossConfig(class_weights="inverse"), small_index())
    np.testing.assert_allclose(weights(1 - 1e-9), inverse, rtol=1e-6)


def test_the_old_methods_keep_their_weights():
    """median_frequency is not normalised, so its mean weight is another; inverse_frequency has a mean of 1."""
    median = LOSSES["median_frequency"].class_weights(small_index())
    np.testing.assert_allclose(median, formula("median"))
    assert (median * SHARES).sum() == pytest.approx(0.6)
    inverse = LOSSES["inverse_frequency"].class_weights(small_index())
    np.testing.assert_allclose(inverse, balancing_weights(LossConfig(class_weights="inverse"), small_index()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weights_and_smoothing_are_those_of_torch_in_focal_too(smoothing):
    """Without focusing, the focal loss is the cross-entropy: a smoothed label has the weight of each class."""
    logits, labels = small_batch()
    settings = {"scope": "batch", "class_weights": (1, 2, 3, 4), "label_smoothing": smoothing}
    weight = torch.from_numpy(balancing_weights(LossConfig(class_weights=(1, 2, 3, 4)), small_index()))
    losses = F.cross_entropy(
        logits, labels.long(), weight, ignore_index=255, reduction="none", label_smoothing=smoothing
    )
    expected = losses[labels != 255].mean()
    for name, more in (("cross_entropy", {}), ("focal", {"focal_gamma": 0})):
        found = Criterion(LossConfig(name, **settings, **more), small_index())(logits, labels).loss
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_logit_adjustment_is_menons():
    """The cross-entropy of logits + τ·log π; the class that is nowhere gets no offset."""
    logits, labels = small_batch()
    prior = np.where(SHARES > 0, SHARES, 1)
    result = Criterion(LossConfig("cross_entropy", scope="batch", logit_adjustment=1.5), small_index())(logits, labels)
    adjusted = logits + 1.5 * torch.from_numpy(np.log(prior))[:, None, None]
    expected = F.cross_entropy(adjusted, labels.long(), ignore_index=255)
    assert result.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert not torch.equal(logits.argmax(1), adjusted.argmax(1))
    assert torch.equal(result.prediction, logits.argmax(1))


@pytest.mark.parametrize("name", ["lmp", "focal", "ohem", "lovasz"])
def test_logits_are_adjusted_before_the_enlargement(name):
    logits, labels = small_batch(5, size=(12, 16))
    coarse = logits.detach()[:, :, :3, :4]
    full = F.interpolate(coarse, (12, 16), mode="bilinear")
    offsets = torch.from_numpy(logit_offsets(LossConfig(logit_adjustment=0.7), index_of(5)))[:, None, None]
    result = Criterion(LossConfig(name, logit_adjustment=0.7, min_kept=40), index_of(5), stride=4)(coarse, labels)
    expected = Criterion(LossConfig(name, min_kept=40))(full + offsets, labels)
    assert result.loss.item() == pytest.approx(expected.loss.item(), rel=1e-6)
    assert torch.equal(result.prediction, full.argmax(1))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"class_weights": "rare"}, "loss.class_weights must be one of none, inverse, median, effective, or a list"),
        ({"class_weights": [1, -1]}, "loss.class_weights must be numbers of at least 0, and not all 0, got [1, -1]"),
        ({"class_weights": [0, 0]}, "loss.class_weights must be numbers of at least 0, and not all 0, got [0, 0]"),
        ({"class_weights": [1, True]}, "loss.class_weights must be a number, got [1, True]"),
        ({"class_weights": [1, 2]}, "loss.class_weights must have one number for each of the 4 classes, got 2"),
        (
            {"class_weights": [0, 0, 1, 0]},
            "loss.class_weights must weight a class of the training data, got [0.0,",
        ),
        ({"logit_adjustment": -1}, "loss.logit_adjustment must be at least 0, got -1"),
        ({"effective_beta": 1}, "loss.effective_beta must be less than 1, got 1"),
    ],
)
def test_mistakes_are_one_sentence(settings, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        Criterion(LossConfig(**settings), small_index())


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ({"class_weights": "inverse"}, "loss.class_weights"),
        ({"logit_adjustment": 1}, "loss.logit_adjustment"),
        ({"name": "median_frequency"}, "loss 'median_frequency'"),
    ],
)
def test_without_class_frequencies_they_are_asked_for(settings, subject):
    with pytest.raises(UserError, match=f"^{subject} needs the class frequencies of the training data"):
        Criterion(LossConfig(**settings))
