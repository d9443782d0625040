"""p and m as functions of the step."""

import math
import re

import pytest

from loss_batches import small_batch, small_index
from losspool.segmentation.base import UserError
from losspool.segmentation.config import dump_config, load_config
from losspool.segmentation.losses import LOSSES, Criterion, LossConfig
from runs_for_tests import assert_equal, checkpoint, metrics, train, write_recipe

M = {"from": "100%", "to": "25%", "steps": 100}
P = {"from": math.inf, "to": 1.3, "steps": 100}


@pytest.mark.parametrize(("step", "share"), [(0, 1.0), (50, 0.625), (99, 0.2575), (100, 0.25), (999, 0.25)])
def test_m_is_linear_in_the_share(step, share):
    assert LossConfig(m=M).at(step).share == pytest.approx(share, rel=1e-12)


def test_m_in_pixels_stays_whole():
    settings = LossConfig(m={"from": "900px", "to": "100px", "steps": 3})
    assert [settings.at(step).share for step in range(5)] == [900, 633, 367, 100, 100]
    assert all(type(settings.at(step).share) is int for step in range(5))


@pytest.mark.parametrize(("step", "p"), [(0, math.inf), (50, 2.6), (25, 5.2), (100, 1.3), (101, 1.3)])
def test_p_is_linear_in_its_inverse(step, p):
    assert LossConfig(p=P).at(step).norm == pytest.approx(p, rel=1e-12)


def test_the_loss_at_a_step_is_that_of_its_values():
    logits, labels = small_batch()
    criterion = Criterion(LossConfig("lmp", p=P, m=M))
    for step, p, m in ((0, math.inf, 1.0), (50, 2.6, 0.625), (100, 1.3, 0.25)):
        expected = Criterion(LossConfig("lmp", p=p, m=m))(logits, labels).loss.item()
        assert criterion(logits, labels, step=step).loss.item() == pytest.approx(expected, rel=1e-9)
    plain = Criterion(LossConfig("cross_entropy"))(logits, labels)
    assert criterion(logits, labels, step=0).loss.item() == pytest.approx(plain.loss.item(), rel=1e-9)
    with pytest.raises(UserError, match="have a schedule, which needs the step"):
        criterion(logits, labels)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (
            "m",
            {"from": "100%", "to": "25%"},
            "loss.m must have the keys from, to and steps as a schedule, and no others",
        ),
        ("m", {**M, "unit": 1}, "loss.m must have the keys from, to and steps as a schedule, and no others, got {"),
        ("m", {**M, "to": "1000px"}, "loss.m must go from a share to a share, or from a number of pixels to a number"),
        ("m", {**M, "from": 2}, "loss.m has a 'from' that must have a unit, 2px or a percentage, got {"),
        ("m", {**M, "to": "much"}, "loss.m has a 'to' that must be like 25%, 0.25 or 1000px, got {"),
        ("m", {**M, "steps": 0}, "loss.m has 'steps' that must be a whole number of at least 1, got {"),
        ("m", {**M, "steps": 2.5}, "loss.m has 'steps' that must be a whole number of at least 1, got {"),
        ("m", {**M, "steps": "soon"}, "loss.m has 'steps' that must be a whole number of at least 1, got {"),
        ("p", {**P, "to": 0.5}, "loss.p has a 'to' that must be at least 1, got {"),
        ("p", {**P, "from": "high"}, "loss.p has a 'from' that must be a number, got {"),
        ("p", {}, "loss.p must have the keys from, to and steps as a schedule"),
        ("p", math.nan, "loss.p must be a number, got nan"),
        ("p", [1], "loss.p must be a number, got [1]"),
    ],
)
def test_mistakes_are_one_sentence(field, value, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        LossConfig(**{field: value})


def test_a_config_keeps_its_schedules(tmp_path):
    recipe = write_recipe(tmp_path)
    overrides = ["loss.p={from: inf, to: 1.3, steps: 1e1}", "loss.m={from: 100%, to: 25%, steps: 8}", "loss.m.to=1e-1"]
    config = load_config(recipe, overrides)
    assert config.loss.p == {"from": math.inf, "to": 1.3, "steps": 10}
    assert config.loss.at(8).share == 0.1
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


def test_a_resumed_run_goes_on_with_the_same_values(tmp_path):
    recipe = write_recipe(tmp_path, log_every=2)
    overrides = ["loss.p={from: inf, to: 1.3, steps: 9}", "loss.m={from: 100%, to: 25%, steps: 8}"]
    train(recipe, tmp_path / "whole", *overrides)
    train(recipe, tmp_path / "parts", *overrides)
    for path in (tmp_path / "parts" / "checkpoints").glob("step-*.pt"):
        if "0000010" not in path.name:
            path.unlink()
    (tmp_path / "parts" / "run.json").unlink()
    train(recipe, tmp_path / "parts", *overrides, resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    logged = {line["step"]: (line["p"], line["m"]) for line in metrics(tmp_path / "whole") if line["split"] == "train"}
    settings = load_config(recipe, overrides).loss
    assert logged == {step: (settings.at(step - 1).norm, settings.at(step - 1).share) for step in range(2, 13, 2)}


def test_infinity_is_logged_as_text_and_plain_settings_are_not_logged(tmp_path):
    recipe = write_recipe(tmp_path, log_every=1, steps=2)
    train(recipe, tmp_path / "run", "loss.p={from: inf, to: 2, steps: 4}")
    lines = [line for line in metrics(tmp_path / "run") if line["split"] == "train"]
    assert [line["p"] for line in lines] == ["inf", 8.0]
    assert all("m" not in line for line in lines)


@pytest.mark.parametrize("name", LOSSES)
def test_what_a_loss_does_not_use_is_not_logged(name):
    logits, labels = small_batch()

    def value(p, m):
        return Criterion(LossConfig(name, p=p, m=m), small_index())(logits, labels, [1, 2]).loss.item()

    used = [key for key, other in {"p": (3, "50%"), "m": (1.3, "25%")}.items() if value(*other) != value(1.3, "50%")]
    assert list(LossConfig(name, p=P, m=M).logged(50)) == used


def test_what_any_term_uses_is_logged():
    terms = {"cross_entropy": 1, "bootstrapping": 1}
    assert list(LossConfig("cross_entropy", p=P, m=M, terms=terms).logged(50)) == ["m"]
    assert list(LossConfig("another.package", p=P, m=M).logged(50)) == ["p", "m"]


def test_the_trainer_passes_its_step(tmp_path):
    """With weights that stand still, each step has the loss of the value that its schedule gives it."""
    recipe = write_recipe(tmp_path, log_every=1, steps=3, lr=1e-30)

    def losses(name, p):
        train(recipe, tmp_path / name, f"loss.p={p}", "sampling.mix=0")
        return [line["loss"] for line in metrics(tmp_path / name) if line["split"] == "train"]

    mean, pooled = losses("mean", "inf"), losses("pooled", "1.3")
    assert mean != pooled
    assert losses("scheduled", "{from: inf, to: 1.3, steps: 1}") == [mean[0], *pooled[1:]]
