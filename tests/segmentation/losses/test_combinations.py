"""Losses, class weights, logit adjustment, terms and schedules in every combination, against plain formulas."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F

from loss_batches import index_of, small_batch
from losspool import reference
from losspool.segmentation.base import UserError
from losspool.segmentation.config import load_config
from losspool.segmentation.losses import LOSSES, Criterion, LossConfig
from losspool.segmentation.losses.class_weights import (
    balancing_weights,
    inverse_frequency,
    logit_offsets,
    median_frequency,
)
from runs_for_tests import metrics, train, write_recipe

WEIGHTS = ["none", "inverse", "median", "effective", (1.0, 2.0, 3.0, 4.0)]
ADJUSTMENTS = [0.0, 0.8]
TERMS = [{}, {"dice": 0.5}, {"lovasz": 0.25, "lmp": 0.5, "ohem": 2.0}]
SCHEDULES = [
    ({"p": 1.7, "m": "50%"}, 1.7, 0.5),
    ({"p": {"from": "inf", "to": 1.4, "steps": 10}, "m": {"from": "100%", "to": "40%", "steps": 10}}, 2.8, 0.7),
]
OWN_WEIGHTS = {"inverse_frequency": inverse_frequency, "median_frequency": median_frequency}
REGIONS = ("dice", "lovasz")
SEEDS = [3, 4]
INDEX = index_of(4)


def plain(name, logits, labels, weights, p, m, settings):
    """The loss by its formula, with autograd of plain torch."""
    if name == "random_pixels":
        labels = LOSSES[name].keep_pixels(labels, LossConfig(name, m=m), SEEDS)
    valid, target = labels != 255, labels.long().clamp(max=3)
    likely = logits.softmax(1).gather(1, target[:, None])[:, 0]
    losses = -likely.log() * (1 if weights is None else torch.from_numpy(weights)[target])
    if name == "focal":
        losses = losses * (1 - likely) ** 2
    if name == "ohem":
        bound = max(likely[valid].sort().values[settings.min_kept].item(), settings.ohem_threshold)
        return losses[valid & (likely < bound)].mean()
    images = zip(logits, labels, losses, valid, strict=True)
    return torch.stack([_image(name, *each, p, m) for each in images]).mean()


def _image(name, logits, labels, losses, valid, p, m):
    if name in ("lmp", "bootstrapping"):
        values = losses[valid]
        found = reference.pool(values.detach(), p=p if name == "lmp" else 1, m=m * len(values))
        return (found.weights * values).sum()  # by Danskin's theorem the gradient of the optimum
    if name not in REGIONS:
        return losses[valid].mean()
    likely, found = logits.softmax(0)[:, valid], []
    for label in labels[valid].unique().long():
        truth = (labels[valid] == label).double()
        if name == "dice":
            found.append(1 - 2 * (likely[label] * truth).sum() / (likely[label].sum() + truth.sum()))
        else:
            errors, order = (truth - likely[label]).abs().sort(descending=True)
            sorted_truth = truth[order]
            union = truth.sum() + (1 - sorted_truth).cumsum(0)
            jaccard = 1 - (truth.sum() - sorted_truth.cumsum(0)) / union
            found.append((errors * torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])).sum())
    return torch.stack(found).mean()


def refusal(name, class_weights, terms):
    """The sentence of a combination that cannot be had."""
    if class_weights != "none" and name in OWN_WEIGHTS:
        return f"loss '{name}' has class weights of its own and cannot take loss.class_weights"
    if class_weights != "none" and set(terms) <= set(REGIONS):
        return "loss.class_weights weight pixels"
    return None


@pytest.mark.parametrize("terms", TERMS, ids=["alone", "with dice", "with three"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_combination_is_its_formula(name, terms):
    logits, labels = small_batch()
    terms = {name: 1.0} | terms if terms else {}
    for class_weights, adjustment, (moving, p, m) in itertools.product(WEIGHTS, ADJUSTMENTS, SCHEDULES):
        options = {"class_weights": class_weights, "logit_adjustment": adjustment, "terms": terms, **moving}
        settings = LossConfig(name, **options, min_kept=9, ohem_threshold=0.3, effective_beta=0.99)
        sentence = refusal(name, class_weights, terms or {name: 1.0})
        if sentence is not None:
            with pytest.raises(UserError, match=re.escape(sentence)):
                Criterion(settings, INDEX)
            continue
        result = Criterion(settings, INDEX).double()(logits, labels, SEEDS, step=5)
        expected = 0
        for term, factor in settings.weighted.items():
            rule = OWN_WEIGHTS.get(term)
            weights = rule(INDEX) if rule else None
            if rule is None and class_weights != "none":
                weights = balancing_weights(settings, INDEX)
            adjusted = logits + torch.from_numpy(logit_offsets(settings, INDEX))[:, None, None]
            expected = expected + factor * plain(term, adjusted, labels, weights, p, m, settings)
        torch.testing.assert_close(result.loss, expected, rtol=1e-5, atol=1e-9, msg=str(settings))
        ours, theirs = (torch.autograd.grad(each, logits)[0] for each in (result.loss, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-8, msg=str(settings))
        assert not ours.movedim(1, 3)[labels == 255].any()
        assert torch.equal(result.prediction, logits.argmax(1))


@pytest.mark.parametrize("scope", ["image", "batch"])
@pytest.mark.parametrize("terms", [{"lmp": 1}, {"lmp": 0.5, "cross_entropy": 2, "ohem": 1}, {"lmp": 2, "dice": 1}])
def test_weights_are_those_of_the_cross_entropies_in_the_sum(terms, scope):
    """The sum of weight times cross-entropy is the loss of all terms that have one per pixel."""
    logits, labels = small_batch()
    settings = LossConfig("lmp", terms=terms, scope=scope, min_kept=9, ohem_threshold=0.3, class_weights="inverse")
    result = Criterion(settings, INDEX)(logits, labels)
    entropy = F.cross_entropy(logits, labels.long(), ignore_index=255, reduction="none")
    pixels = {name: factor for name, factor in terms.items() if name not in REGIONS}
    expected = Criterion(LossConfig(**{**vars_of(settings), "terms": pixels}), INDEX)(logits, labels).loss
    images = 2 if scope == "image" else 1
    assert (result.weights * entropy).sum().item() / images == pytest.approx(expected.item(), rel=1e-5)
    alone = Criterion(LossConfig("lmp", scope=scope, class_weights="inverse"), INDEX)(logits, labels)
    torch.testing.assert_close(result.stats.alpha, alone.stats.alpha)


def vars_of(settings):
    return {name: getattr(settings, name) for name in ("name", "scope", "min_kept", "ohem_threshold", "class_weights")}


@pytest.mark.parametrize("name", LOSSES)
def test_void_costs_nothing_whatever_its_logits(name):
    logits, labels = small_batch()
    outlandish = logits.detach().clone()
    outlandish.movedim(1, 3)[labels == 255] = torch.tensor([1e30, -1e30, 0, 7], dtype=torch.float64)
    settings = LossConfig(name, min_kept=9, ohem_threshold=0.3)
    values = [Criterion(settings, INDEX)(each, labels, SEEDS).loss.item() for each in (logits, outlandish)]
    assert values[1] == pytest.approx(values[0], rel=1e-12)
    void = Criterion(settings, INDEX)(logits, torch.full_like(labels, 255), SEEDS)
    assert void.loss.item() == 0
    assert not torch.autograd.grad(void.loss, logits)[0].any()


@pytest.mark.parametrize("name", REGIONS)
def test_regions_cannot_span_processes(name):
    with pytest.raises(UserError, match=f"loss '{name}' cannot span processes; set loss.scope to image or batch"):
        Criterion(LossConfig("lmp", scope="global", terms={"lmp": 1, name: 1}))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["loss.terms={dice: 1}"], "loss.terms must contain loss.name 'lmp', got {'dice': 1.0}; name a method"),
        (["method=base", "loss.terms={lmp: 1, dice: 1}"], "loss.terms must contain loss.name 'cross_entropy'"),
        (["loss.terms={lmp: 1, dise: 1}"], "loss.terms.dise must be one of cross_entropy, lmp,"),
        (["loss.terms={lmp: 0}"], "loss.terms.lmp must be greater than 0, got 0"),
        (["loss.terms={lmp: much}"], "loss.terms.lmp must be a number, got 'much'"),
        (["loss.terms=[lmp]"], "loss.terms must hold settings by name, got ['lmp']"),
        (["loss.args.gamma=1"], "loss.args are for losses of other packages, got {'gamma': 1} for lmp;"),
        (["loss.focal_gama=1"], "unknown key 'loss.focal_gama'; did you mean 'loss.focal_gamma'?"),
        (["loss.min_kept=0"], "loss.min_kept must be at least 1 pixel, got 0"),
        (["loss.min_kept=-5"], "loss.min_kept must be at least 1 pixel, got -5"),
        (["loss.min_kept=2.5"], "loss.min_kept must be more than 0 and at most 100%, got 2.5"),
        (["loss.ohem_threshold=1.5"], "loss.ohem_threshold must be at most 1, got 1.5"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, overrides, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        load_config(write_recipe(tmp_path), overrides)


@pytest.mark.parametrize(("smoothing", "said"), [(0.1, True), (0.0, False)])
def test_a_run_says_that_losses_of_regions_smooth_no_labels(tmp_path, capsys, smoothing, said):
    overrides = ("method=lmp", "loss.terms={lmp: 1, dice: 0.5}", f"loss.label_smoothing={smoothing}", "train.steps=1")
    train(write_recipe(tmp_path), tmp_path / "run", *overrides)
    assert (
        "loss.label_smoothing acts on losses per pixel, so it has no effect on dice" in capsys.readouterr().err
    ) == said


def test_a_run_trains_with_all_of_them(tmp_path):
    overrides = [
        *(
            "method=focal",
            "loss.terms={focal: 1, dice: 0.5, bootstrapping: 1}",
            "loss.terms.lovasz=0.5",
            "loss.class_weights=effective",
        ),
        *("loss.logit_adjustment=1", "loss.m={from: 100%, to: 25%, steps: 4}", "train.steps=6"),
    ]
    trainer = train(write_recipe(tmp_path), tmp_path / "run", *overrides)
    assert trainer.config.loss.weighted == {"focal": 1, "dice": 0.5, "bootstrapping": 1, "lovasz": 0.5}
    first = next(line for line in metrics(tmp_path / "run") if line["split"] == "train")
    assert first["loss"] > 0
    assert first["m"] == 0.4375
    assert list((tmp_path / "run" / "previews").glob("*-weights.png"))
