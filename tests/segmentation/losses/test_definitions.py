"""Dice, Lovász-Softmax and OHEM against their authors' definitions, written out in numpy."""

import numpy as np
import pytest
import torch

from loss_batches import small_batch
from losspool.segmentation.losses import Criterion, LossConfig


def probabilities(logits):
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def pixels_of(logits, labels):
    """(N, C) probabilities and (N,) labels of the valid pixels."""
    likely = probabilities(logits.detach().numpy()).transpose(0, 2, 3, 1)
    return likely[labels.numpy() != 255], labels.numpy()[labels.numpy() != 255]


def dice(likely, labels):
    """Milletari et al., without squares."""
    losses = []
    for each in np.unique(labels):
        truth = (labels == each).astype(float)
        losses.append(1 - 2 * (likely[:, each] * truth).sum() / (likely[:, each].sum() + truth.sum()))
    return np.mean(losses)


def lovasz(likely, labels):
    """Berman et al., Alg. 1, from the definition of the Lovász extension: the Jaccard loss of growing error sets."""
    losses = []
    for each in np.unique(labels):
        truth = labels == each
        errors = np.abs(truth - likely[:, each])
        value, before, wrong = 0.0, 0.0, np.zeros(len(labels), bool)
        for pixel in np.argsort(-errors):
            wrong[pixel] = True
            predicted = truth ^ wrong
            jaccard = 1 - (truth & predicted).sum() / (truth | predicted).sum()
            value, before = value + errors[pixel] * (jaccard - before), jaccard
        losses.append(value)
    return np.mean(losses)


DEFINITIONS = {"dice": dice, "lovasz": lovasz}


@pytest.mark.parametrize("scope", ["image", "batch"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_region_losses_are_their_authors(name, scope):
    logits, labels = small_batch()
    labels[0][labels[0] == 3] = 1  # a class that only one of the images has
    if scope == "batch":
        expected = DEFINITIONS[name](*pixels_of(logits, labels))
    else:
        expected = np.mean([DEFINITIONS[name](*pixels_of(logits[[i]], labels[[i]])) for i in (0, 1)])
    result = Criterion(LossConfig(name, scope=scope))(logits, labels)
    assert result.loss.item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(result.prediction, logits.argmax(1))


@pytest.mark.parametrize("scope", ["image", "batch"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_gradients_are_those_of_finite_differences(name, scope):
    logits, labels = small_batch(images=2, size=(3, 4))
    labels[1, 2, 0] = 255
    criterion = Criterion(LossConfig(name, scope=scope))
    assert torch.autograd.gradcheck(lambda each: criterion(each, labels).loss, (logits,), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_perfect_prediction_costs_nothing_and_a_wrong_one_costs_1(name):
    labels = small_batch()[1]
    truth = torch.nn.functional.one_hot(labels.long().clamp(max=3), 4).movedim(3, 1).double()
    criterion = Criterion(LossConfig(name))
    assert criterion(100 * truth, labels).loss.item() == pytest.approx(0, abs=1e-12)
    assert criterion(100 * truth.roll(1, 1), labels).loss.item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_images_without_a_valid_pixel_do_not_count(name):
    logits, labels = small_batch(images=3)
    labels[1] = 255
    kept = Criterion(LossConfig(name))(logits[[0, 2]], labels[[0, 2]])
    assert Criterion(LossConfig(name))(logits, labels).loss.item() == pytest.approx(kept.loss.item(), rel=1e-12)


def ohem(likely, labels, threshold, min_kept):
    """The mean over the kept pixels as HRNet's and OCR's OhemCrossEntropy has it: over the batch, min_kept in it."""
    right = likely[np.arange(len(labels)), labels]
    order = np.sort(right)
    bound = max(order[min(min_kept, len(order) - 1)], threshold)
    return -np.log(right[right < bound]).mean()


@pytest.mark.parametrize("scope", ["image", "batch"])
@pytest.mark.parametrize("min_kept", [1, 10, 40, "30px", "50%"])
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.7])
def test_ohem_is_the_public_one(threshold, min_kept, scope):
    logits, labels = small_batch()
    valid = int((labels != 255).sum())
    number = {"30px": 30, "50%": round(valid / 2)}.get(min_kept, min_kept)
    settings = LossConfig("ohem", ohem_threshold=threshold, min_kept=min_kept, scope=scope)
    result = Criterion(settings)(logits, labels)
    assert result.loss.item() == pytest.approx(ohem(*pixels_of(logits, labels), threshold, number), rel=1e-9)
    images = 2 if scope == "image" else 1
    assert result.weights.sum().item() == pytest.approx(images, rel=1e-6)


def test_ohem_keeps_at_least_min_kept():
    """The public implementations lose a pixel where min_kept exceeds the batch, and all where all are alike."""
    logits, labels = small_batch()
    plain = Criterion(LossConfig("cross_entropy", scope="batch"))
    found = Criterion(LossConfig("ohem", ohem_threshold=0))(logits, labels)
    assert found.loss.item() == pytest.approx(plain(logits, labels).loss.item(), rel=1e-9)
    certain = torch.zeros(2, 4, 6, 7, dtype=torch.float64)
    found = Criterion(LossConfig("ohem", ohem_threshold=0, min_kept=5))(certain, labels)
    assert found.loss.item() == pytest.approx(np.log(4), rel=1e-9)


def test_ohem_follows_coarse_logits():
    logits, labels = small_batch(size=(12, 16), dtype=torch.float32)
    coarse = logits.detach()[:, :, :3, :4].requires_grad_()
    full = torch.nn.functional.interpolate(coarse, (12, 16), mode="bilinear")
    settings = LossConfig("ohem", min_kept=20, ohem_threshold=0.1)
    ours, theirs = Criterion(settings, stride=4)(coarse, labels), Criterion(settings)(full, labels)
    torch.testing.assert_close(ours.loss, theirs.loss)
    gradients = [torch.autograd.grad(each.loss, coarse, retain_graph=True)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*gradients)
