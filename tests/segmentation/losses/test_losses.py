"""Every loss against its definition, written out with plain torch."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from loss_batches import index_of, small_index
from losspool import reference
from losspool.segmentation.base import UserError
from losspool.segmentation.losses import LOSSES, Criterion, LossConfig

CLASSES = 5


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, CLASSES, 5, 6, generator=generator).requires_grad_()
    labels = torch.randint(0, CLASSES, (2, 19, 23), generator=generator).to(torch.uint8)
    labels[0, :4] = 255
    labels[1, :, -3:] = 255
    full = F.interpolate(logits, (19, 23), mode="bilinear", align_corners=False)
    return logits, labels, full


@pytest.mark.parametrize("options", [loss.options for loss in LOSSES.values() if loss.options is not None])
def test_options_of_the_table_are_settings(options):
    stated = {each.name: getattr(options(), each.name) for each in fields(options)}
    assert LossConfig(**stated) == LossConfig()


@pytest.mark.parametrize(
    ("name", "function", "stated"),
    [("focal", "pixel_loss", {"focal_gamma": 0.5}), ("ohem", "keep_hard", {"ohem_threshold": 0.3, "min_kept": "7%"})],
)
def test_a_loss_gets_its_options_and_no_others(name, function, stated, monkeypatch):
    seen, real = [], getattr(LOSSES[name], function)
    noting = {function: lambda *given, **options: seen.append(options) or real(*given, **options)}
    monkeypatch.setitem(LOSSES, name, replace(LOSSES[name], **noting))
    Criterion(LossConfig(name, **stated))(torch.zeros(1, 2, 4, 4), torch.zeros(1, 4, 4, dtype=torch.uint8))
    assert seen == [stated]


def entropies(full, labels):
    return F.cross_entropy(full, labels.long(), ignore_index=255, reduction="none")


def per_image_mean(losses, labels):
    return torch.stack([loss[label != 255].mean() for loss, label in zip(losses, labels, strict=True)]).mean()


def check(result, expected, logits):
    """Value and gradient."""
    torch.testing.assert_close(result.loss, expected, rtol=1e-5, atol=1e-6)
    ours, theirs = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (result.loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_cross_entropy(batch):
    logits, labels, full = batch
    result = Criterion(LossConfig("cross_entropy"))(logits, labels)
    check(result, per_image_mean(entropies(full, labels), labels), logits)
    assert torch.equal(result.prediction, full.argmax(1))
    torch.testing.assert_close(result.weights.sum(), torch.tensor(2.0))


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.region_loss is None])
def test_trimmed_pixels_are_as_if_void(batch, name):
    """A tenth of each image's valid pixels: those with the largest losses as they are pooled."""
    logits, labels, _ = batch
    index, seeds = index_of(CLASSES), [1, 2]
    settings, trimmed = LossConfig(name, min_kept=50), LossConfig(name, min_kept=50, trim=0.1)
    result = Criterion(trimmed, index)(logits, labels, seeds)
    plain = Criterion(settings, index)(logits, labels, seeds)
    assert result.loss < plain.loss
    left_out = (result.weights == 0) & (plain.weights > 0)
    assert left_out.sum() == result.stats.trimmed.sum() > 0
    if name in ("ohem", "random_pixels"):  # they would select other pixels in place of the trimmed ones
        return
    again = Criterion(settings, index)(logits, torch.where(left_out, 255, labels), seeds)
    check(result, again.loss, logits)


@pytest.mark.parametrize("name", ["dice", "lovasz"])
def test_a_loss_of_regions_has_no_pixels_to_trim(name):
    with pytest.raises(UserError, match=f"loss '{name}' has no loss per pixel to trim; set loss.trim to 0, not 0.1"):
        Criterion(LossConfig(name, trim=0.1))


@pytest.mark.parametrize("name", LOSSES)
def test_a_label_that_is_no_class_is_named(batch, name):
    logits, labels, _ = batch
    labels[1, 2, 2] = 9
    with pytest.raises(ValueError, match=r"target holds the label 9, but there are 5 classes \(0 to 4\)"):
        Criterion(LossConfig(name, m="100%"), index_of(CLASSES))(logits, labels, [1, 2])


def test_random_pixels_without_seeds_are_refused(batch):
    logits, labels, _ = batch
    with pytest.raises(UserError, match=r"^loss 'random_pixels' needs seeds=, a number per image: got 0 for 2$"):
        Criterion(LossConfig("random_pixels"))(logits, labels)


@pytest.mark.parametrize("name", [name for name in LOSSES if not name.endswith("frequency")])
def test_a_class_that_is_ruled_out_is_as_if_it_did_not_exist(batch, name):
    """Class 2 has a logit of -inf everywhere, as a network that masks classes gives it."""
    logits, labels, _ = batch
    there = [0, 1, 3, 4]
    labels = torch.where(labels == 2, 1, labels)
    ruled_out = logits.detach().index_fill(1, torch.tensor([2]), -math.inf).requires_grad_()
    fewer = logits.detach()[:, there].requires_grad_()
    result = Criterion(LossConfig(name))(ruled_out, labels, [1, 2])
    expected = Criterion(LossConfig(name))(fewer, torch.where((labels > 2) & (labels < 9), labels - 1, labels), [1, 2])
    torch.testing.assert_close(result.loss, expected.loss)
    assert torch.equal(result.prediction, torch.tensor(there)[expected.prediction])
    gradient, wanted = (torch.autograd.grad(each.loss, x)[0] for each, x in ((result, ruled_out), (expected, fewer)))
    torch.testing.assert_close(gradient[:, there], wanted, rtol=1e-4, atol=1e-7)
    assert not gradient[:, 2].any()


@pytest.mark.parametrize(
    "name", ["cross_entropy", "lmp", "bootstrapping", "focal", "random_pixels", "median_frequency"]
)
def test_with_a_stride_labels_end_within_the_last_cells(batch, name):
    """5×6 cells of 4×4 pixels, of which 19×23 are there: what a deconvolution of stride 4 gives, cut to size."""
    logits, labels, _ = batch
    full = F.interpolate(logits, (20, 24), mode="bilinear", align_corners=False)[:, :, :19, :23]
    result = Criterion(LossConfig(name), index_of(5), stride=4)(logits, labels, [1, 2])
    expected = Criterion(LossConfig(name), index_of(5))(full, labels, [1, 2])
    check(result, expected.loss, logits)
    assert torch.equal(result.prediction, full.argmax(1))
    torch.testing.assert_close(result.weights, expected.weights, rtol=1e-4, atol=1e-7)


def test_the_plain_loss_over_the_batch_is_torchs(batch):
    logits, labels, full = batch
    result = Criterion(LossConfig("cross_entropy", scope="batch"))(logits, labels)
    check(result, F.cross_entropy(full, labels.long(), ignore_index=255), logits)


def test_lmp_is_the_papers(batch):
    logits, labels, full = batch
    result = Criterion(LossConfig("lmp", p=1.3, m="25%"))(logits, labels)
    values = []
    for losses, label in zip(entropies(full, labels).detach().double(), labels, strict=True):
        valid = losses[label != 255]
        values.append(reference.pool(valid, p=1.3, m=0.25 * len(valid)).value)
    assert result.loss.item() == pytest.approx(sum(values) / 2, rel=1e-5)


@pytest.mark.parametrize("name", ["inverse_frequency", "median_frequency"])
def test_weighted_losses(batch, name):
    logits, labels, full = batch
    weights = LOSSES[name].class_weights(index_of(5))
    result = Criterion(LossConfig(name), index_of(5))(logits, labels)
    factors = torch.tensor(weights, dtype=torch.float32)[labels.long().clamp(max=4)]
    check(result, per_image_mean(factors * entropies(full, labels), labels), logits)
    total = sum(factors[image][labels[image] != 255].mean() for image in (0, 1))
    torch.testing.assert_close(result.weights.sum(), total)


def test_bootstrapping_is_the_mean_of_the_hardest(batch):
    logits, labels, full = batch
    result = Criterion(LossConfig("bootstrapping", m="40px"))(logits, labels)
    hardest = [
        losses[label != 255].topk(40).values.mean()
        for losses, label in zip(entropies(full, labels), labels, strict=True)
    ]
    check(result, torch.stack(hardest).mean(), logits)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal(batch, gamma):
    logits, labels, full = batch
    result = Criterion(LossConfig("focal", focal_gamma=gamma))(logits, labels)
    likely = full.softmax(1).gather(1, labels.long().clamp(max=4)[:, None])[:, 0]
    check(result, per_image_mean((1 - likely) ** gamma * -likely.log() * (labels != 255), labels), logits)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_of_pixels_that_are_certain_has_a_gradient(gamma):
    logits = torch.zeros(1, CLASSES, 4, 4)
    logits[:, 0] = 60
    logits.requires_grad_()
    Criterion(LossConfig("focal", focal_gamma=gamma))(logits, torch.zeros(1, 8, 8, dtype=torch.uint8)).loss.backward()
    assert logits.grad.isfinite().all()


def random_pixels(labels, m, seeds):
    return LOSSES["random_pixels"].keep_pixels(labels, LossConfig("random_pixels", m=m), seeds)


def test_random_pixels_are_the_seeds_choice(batch):
    logits, labels, full = batch
    kept = random_pixels(labels, "25%", [3, 4])
    for image in (0, 1):
        chosen = kept[image] != 255
        assert chosen.sum() == round(0.25 * (labels[image] != 255).sum().item())
        assert torch.equal(kept[image][chosen], labels[image][chosen])
    assert torch.equal(kept, random_pixels(labels, "25%", [3, 4]))
    assert not torch.equal(kept, random_pixels(labels, "25%", [5, 4]))
    result = Criterion(LossConfig("random_pixels", m="25%"))(logits, labels, [3, 4])
    check(result, per_image_mean(entropies(full, kept), kept), logits)


def test_random_pixels_of_a_number_and_of_nothing():
    labels = torch.full((2, 3, 3), 255, dtype=torch.uint8)
    labels[0, 0] = 1
    assert (random_pixels(labels, "2px", [0, 1]) != 255).sum() == 2
    assert (random_pixels(labels, "100px", [0, 1]) != 255).sum() == 3


def test_inverse_frequency_weights():
    weights = LOSSES["inverse_frequency"].class_weights(small_index())
    shares = np.array([180, 20, 0, 50]) / 250
    np.testing.assert_allclose(weights[[0, 1, 3]], 1 / (3 * shares[[0, 1, 3]]))
    assert weights[2] == 0
    assert (weights * shares).sum() == pytest.approx(1)


def test_median_frequency_weights():
    """Eigen and Fergus: pixels of the class over the pixels of the images that hold it."""
    frequency = {0: 180 / 300, 1: 20 / 100, 3: 50 / 200}
    weights = LOSSES["median_frequency"].class_weights(small_index())
    for label, value in frequency.items():
        assert weights[label] == pytest.approx(np.median(list(frequency.values())) / value)
    assert weights[2] == 0


def test_only_the_frequency_baselines_weight_classes():
    assert [name for name, loss in LOSSES.items() if loss.class_weights] == ["inverse_frequency", "median_frequency"]


@pytest.mark.parametrize("name", ["cross_entropy", "lmp", "bootstrapping", "focal", "random_pixels"])
def test_a_batch_of_void_costs_nothing_and_hangs_on_the_graph(name):
    logits = torch.randn(2, CLASSES, 4, 4, requires_grad=True)
    labels = torch.full((2, 8, 8), 255, dtype=torch.uint8)
    result = Criterion(LossConfig(name))(logits, labels, [0, 1])
    result.loss.backward()
    assert result.loss.item() == 0
    assert not logits.grad.any()
    assert math.isfinite(result.weights.sum())


def test_a_loss_that_selects_hard_pixels_depends_on_its_batch():
    """So its run cannot change the size of its micro-batches, even where every other loss pools by images."""
    assert Criterion(LossConfig("lmp")).scope == "image"
    assert Criterion(LossConfig("lmp", scope="global")).scope == "global"
    assert Criterion(LossConfig("ohem")).scope == "batch"
    assert Criterion(LossConfig("lmp", terms={"lmp": 1.0, "ohem": 0.5})).scope == "batch"
