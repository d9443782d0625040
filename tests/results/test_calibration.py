"""The expected calibration error, against a slow loop, and temperatures that are known."""

import json
import re
from pathlib import Path

import pytest
import torch

from result_scripts import refused, script
from runs_for_tests import train, write_recipe

calibration = script("calibration")
ROOT = Path(__file__).resolve().parents[2]
NETWORK = "tiny_model.build_plain"


def drawn(temperature, pixels=20_000):
    """Logits whose softmax at this temperature is the distribution of their labels."""
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(pixels, 4, generator=generator) * 2
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
    return honest * temperature, labels


def test_the_error_is_the_gap_between_confidence_and_accuracy_by_bin():
    logits, labels = drawn(3.0, 500)
    bins = [[] for _ in range(15)]
    for row, label in zip(logits.double().softmax(1), labels, strict=True):
        confidence, guess = row.max(0)
        bins[min(int(confidence * 15), 14)].append((float(confidence), int(guess == label)))
    expected = sum(abs(sum(hit - confidence for confidence, hit in each)) for each in bins) / 500
    found = calibration.Reliability.of(logits[:200], labels[:200]) + calibration.Reliability.of(
        logits[200:], labels[200:]
    )
    assert found.error == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_fitted_temperature_undoes_a_known_one(temperature):
    logits, labels = drawn(temperature)
    found = calibration.fitted_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.03)
    assert calibration.Reliability.of(logits, labels, found).error < 0.015
    if temperature == 3.0:
        assert calibration.Reliability.of(logits, labels).error > 0.1


def test_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "losspool.segmentation.data.kinds.streets.dataset.SCENE_COUNTS", dict.fromkeys(("train", "val", "test"), 6)
    )
    settings = ("train.steps=2", "data.crop=[40, 48]", "method=base", f"model.name={NETWORK}", "data.name=streets")
    small = ("data.root=null", "data.streets_size=64", "data.streets_train=4", "train.previews=0")
    train(write_recipe(tmp_path), tmp_path / "run", *settings, *small)
    assert "--trust" in refused(calibration.main, tmp_path / "run")
    calibration.main([str(tmp_path / "run"), "--trust", NETWORK])
    found = json.loads((tmp_path / "run/calibration.json").read_text())
    assert found["step"] == 2
    assert 0 <= found["error_scaled"] <= 1
    row = capsys.readouterr().out.splitlines()[-1]
    assert (
        row == f"| run | {100 * found['error']:.2f} | {found['temperature']:.2f} | {100 * found['error_scaled']:.2f} |"
    )
    calibration.main([str(tmp_path / "run"), "--stored"])
    assert capsys.readouterr().out.splitlines()[-1] == row


@pytest.mark.parametrize("page", sorted(ROOT.glob("results/*/README.md")), ids=lambda page: page.parent.name)
def test_the_published_table_is_that_of_the_stored_files(page, capsys):
    text = page.read_text(encoding="utf-8")
    for command in re.findall(r"^python results/calibration\.py --stored (.*)$", text, re.MULTILINE):
        calibration.main(["--stored", *(str(path) for glob in command.split() for path in sorted(ROOT.glob(glob)))])
        assert capsys.readouterr().out in text
