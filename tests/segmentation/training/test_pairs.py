"""Losses, class weights, logit adjustment, terms and optimisers in all pairs, trained for two steps.

Their values in every combination, against plain formulas, are in losses/test_combinations.py.
"""

import itertools
import re

import numpy as np
import pytest
import torch

from losspool.segmentation.base import UserError
from losspool.segmentation.losses import LOSSES
from runs_for_tests import metrics, train, write_recipe
from small_data import label_values, save

METHODS = {"cross_entropy": "base", "lmp": "lmp_loss_only"}  # others are called like their loss
WEIGHTS = ("none", "inverse", "median", "effective", "[1, 2, 3]")
ADJUSTMENTS = ("0", "1")
TERMS = ({}, {"dice": 0.5}, {"lovasz": 0.5, "focal": 2})
OPTIMIZERS = (
    ("train.optimizer=sgd",),
    ("train.optimizer=adamw", "train.lr=0.003"),
    ("train.optimizer=adamw", "train.lr=0.003", "train.schedule=cosine", "train.clip=0.5", "train.ema=0.9"),
)
FACTORS = (tuple(LOSSES), WEIGHTS, ADJUSTMENTS, range(len(TERMS)), range(len(OPTIMIZERS)))


def pairs(row):
    """Each two values of a row, with the places of their factors."""
    return set(itertools.combinations(enumerate(row), 2))


def refusal(row):
    """Why a combination cannot be had; None if it can."""
    name, class_weights, _, terms, _ = row
    if class_weights != "none" and LOSSES[name].class_weights:
        return f"loss '{name}' has class weights of its own and cannot take loss.class_weights"
    if class_weights != "none" and all(LOSSES[each].region_loss for each in (name, *TERMS[terms])):
        return f"and {', '.join((name, *(each for each in TERMS[terms] if each != name)))} have no loss per pixel"
    return None


def covering(rows):
    """Some of the rows that have every pair that any row has: greedily, most new pairs first."""
    rest = set().union(*map(pairs, rows))
    while rest:
        best = max(rows, key=lambda row: len(pairs(row) & rest))
        rest -= pairs(best)
        yield best


ROWS = list(itertools.product(*FACTORS))
TRAINED = list(covering([row for row in ROWS if refusal(row) is None]))
REFUSED = list(covering([row for row in ROWS if refusal(row) is not None]))


def trained(tmp_path, number, row):
    name, class_weights, adjustment, terms, optimizer = row
    settings = [f"method={METHODS.get(name, name)}", f"loss.class_weights={class_weights}"]
    if TERMS[terms]:
        settings.append(f"loss.terms={ ({name: 1} | TERMS[terms]) }")
    settings += [f"loss.logit_adjustment={adjustment}", "loss.ohem_threshold=0.3", "loss.min_kept=20%"]
    recipe = write_recipe(tmp_path, steps=2, log_every=1)
    # An image without weeds: where all images have all classes, median weights are inverse ones.
    save(tmp_path / "data/labels/train/000.png", np.where(label_values(40, 60) == 2, 0, label_values(40, 60)))
    return train(recipe, tmp_path / str(number), "data.val=null", *settings, *OPTIMIZERS[optimizer])


def test_every_pair_is_trained_or_refused():
    assert set().union(*map(pairs, [*TRAINED, *REFUSED])) == set().union(*map(pairs, ROWS))
    assert len(TRAINED) < 60


def test_every_pair_trains_and_no_two_runs_are_equal(tmp_path):
    """All runs start from the same weights and see the same crops: a setting that is ignored gives two equal runs."""
    ends = {}
    for number, row in enumerate(TRAINED):
        trainer = trained(tmp_path, number, row)
        weights = torch.cat([each.detach().flatten() for each in trainer.model.module.parameters()])
        assert weights.isfinite().all(), row
        lines = metrics(tmp_path / str(number))
        assert [line["step"] for line in lines] == [1, 2]
        assert all(line["grad_norm"] > 0 for line in lines), row
        same = [other for other, end in ends.items() if torch.equal(end, weights)]
        assert not same, f"{row} and {same} are the same run"
        ends[row] = weights


def test_what_cannot_be_had_says_so(tmp_path):
    for number, row in enumerate(REFUSED):
        with pytest.raises(UserError, match=re.escape(refusal(row))) as caught:
            trained(tmp_path, number, row)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / str(number)).exists()
