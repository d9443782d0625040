"""CONTRIBUTING's loss, dataset and network, added as an outside package adds them: by import path."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml

from losspool.segmentation.losses import Criterion, LossConfig
from runs_for_tests import metrics
from small_data import noise, save

CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"
PACKAGE = "outside_package"


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A package that is nothing but CONTRIBUTING's snippets, and a recipe that names all three of its things."""
    snippets = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(snippets) == 3
    (tmp_path / f"{PACKAGE}.py").write_text("\n".join(snippets))
    monkeypatch.syspath_prepend(str(tmp_path))
    for split, count in (("train", 4), ("val", 2)):
        for number in range(count):
            save(tmp_path / "data" / "photos" / split / f"{number}.png", noise(40, 60, seed=number))
            mask = np.zeros((40, 60), np.uint8)
            mask[:, 10 * number + 5 :: 17], mask[-2:] = 1, 255
            save(tmp_path / "data" / "masks" / split / f"{number}.png", mask)
    recipe = {
        "method": f"{PACKAGE}.poly",
        "data": {"name": f"{PACKAGE}.fields", "root": str(tmp_path / "data"), "crop": [24, 24], "workers": 0},
        "model": {"name": f"{PACKAGE}.small"},
        "train": {"steps": 4, "batch": 2, "log_every": 1, "previews": 1},
    }
    recipe["data"]["cache"] = str(tmp_path / "cache")
    (tmp_path / "fields.yaml").write_text(yaml.safe_dump(recipe))
    yield tmp_path
    sys.modules.pop(PACKAGE, None)


def test_check_train_evaluate_and_predict(outside, command):
    code, output, _ = command("data", "check", f"{PACKAGE}.fields", outside / "data")
    assert code == 0, output
    assert "weed" in output
    code, _, error = command("train", outside / "fields.yaml", "--out", outside / "run")
    assert code == 0, error
    assert [line["step"] for line in metrics(outside / "run")] == [1, 2, 3, 4, 4]
    trust = [f"--trust={PACKAGE}.{name}" for name in ("poly", "fields", "small")]
    code, output, error = command("evaluate", outside / "run", *trust)
    assert code == 0, error
    assert "weed" in output
    code, output, error = command(
        "predict", outside / "run", "--out", outside / "p", "--split", "val", "--weights", *trust
    )
    assert code == 0, error
    assert (outside / "p" / "0_weights.png").exists()


OWN_DATASET = """
import re
from losspool.segmentation.data import Groups, Reading


class Fields:
    groups = Groups(re.compile("."))

    def __init__(self, root, split):
        self._files = open_fields(root, split)
        self.name, self.classes, self.names = self._files.name, self._files.classes, self._files.names
        self.pairs, self.label, self.fingerprint = self._files.pairs, self._files.label, self._files.fingerprint
        self.reading = Reading()

    def __len__(self):
        return len(self.names)

    def image(self, index):
        return self._files.image(index)

    def read_as(self, reading):
        self.reading = Reading(reading.exif, (0.0, 9.0))


fields = DatasetKind(Fields, field_splits)
"""


def test_a_dataset_of_another_class_has_groups_files_and_a_reading(outside, command):
    path = outside / f"{PACKAGE}.py"
    path.write_text(path.read_text() + OWN_DATASET)
    code, _, error = command("train", outside / "fields.yaml", "--out", outside / "run")
    assert code == 0, error
    assert yaml.safe_load((outside / "run" / "config.yaml").read_text())["data"]["intensity"] == [0.0, 9.0]
    trust = [f"--trust={PACKAGE}.{name}" for name in ("poly", "fields", "small")]
    assert command("evaluate", outside / "run", *trust)[0] == 0
    (stored,) = (outside / "run").glob("evaluation-*.json")
    lines = json.loads(stored.read_text())["checkpoints"][0]["per_image"]
    assert [line["group"] for line in lines] == ["0", "1"]
    photo = outside / "data" / "photos" / "val" / "1.png"
    code, _, error = command("predict", outside / "run", photo, "--out", outside / "p", "--weights", *trust)
    assert code == 0, error  # the label is found by the image's file
    path.write_text(path.read_text().replace('Groups(re.compile("."))', '["0", "1"]'))
    sys.modules.pop(PACKAGE)
    code, _, error = command("evaluate", outside / "run", *trust)
    assert code == 2
    assert "fields/val: its groups must be losspool.segmentation.data.Groups, got list" in error


@pytest.mark.parametrize("untrusted", ["small", "fields", "poly"])
def test_code_that_is_not_trusted_is_refused_by_name(outside, command, untrusted):
    assert command("train", outside / "fields.yaml", "train.steps=1", "--out", outside / "run")[0] == 0
    sys.modules.pop(PACKAGE)
    trust = [
        word for name in ("poly", "fields", "small") if name != untrusted for word in ("--trust", f"{PACKAGE}.{name}")
    ]
    code, _, error = command("predict", outside / "run", "--out", outside / "p", "--split", "val", "--weights", *trust)
    assert code == 2
    path = f"{PACKAGE}.{untrusted}"
    assert f"{path} is code of another package; if you trust it, pass --trust {path}" in error


def test_a_term_that_is_not_trusted_is_refused_by_name(outside, command):
    terms = f"loss.terms={{focal: 1, {PACKAGE}.poly: 0.5}}"
    code, _, error = command("train", outside / "fields.yaml", "method=focal", terms, "--out", outside / "run")
    assert code == 0, error
    trust = [f"--trust={PACKAGE}.{name}" for name in ("fields", "small")]
    predict = ["predict", outside / "run", "--out", outside / "p", "--split=val", "--weights", *trust]
    code, _, error = command(*predict)
    assert code == 2
    assert f"{PACKAGE}.poly is code of another package; if you trust it" in error
    assert command(*predict, f"--trust={PACKAGE}.poly")[0] == 0


def test_where_nothing_is_trusted_nothing_is_imported(outside, command):
    assert command("train", outside / "fields.yaml", "train.steps=1", "--out", outside / "run")[0] == 0
    sys.modules.pop(PACKAGE)
    assert command("predict", outside / "run", "--out", outside / "p", "--split=val", "--weights")[0] == 2
    assert PACKAGE not in sys.modules


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("logits", r"must return a loss per pixel of shape (2, 24, 24), got (2, 2, 24, 24)"),
        ("-entropy", r"must not be negative, got -"),
        ("entropy + nowhere", r"raised NameError: name 'nowhere' is not defined"),
    ],
)
def test_mistakes_in_the_loss_are_one_sentence(outside, command, returned, sentence):
    path = outside / f"{PACKAGE}.py"
    path.write_text(path.read_text().replace("entropy + epsilon * (1 - (-entropy).exp())", returned))
    sys.modules.pop(PACKAGE, None)
    code, _, error = command("train", outside / "fields.yaml", "--out", outside / "run")
    assert code == 2
    assert f"error: loss '{PACKAGE}.poly' {sentence}" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("options=3", "must have a dataclass as its options, got 3"),
        ("options=None", "raised TypeError: poly_loss() missing 1 required keyword-only argument: 'epsilon'"),
    ],
)
def test_mistakes_in_the_options_are_one_sentence(outside, command, options, sentence):
    path = outside / f"{PACKAGE}.py"
    path.write_text(path.read_text().replace("options=PolyOptions", options))
    code, _, error = command("train", outside / "fields.yaml", "--out", outside / "run")
    assert code == 2
    assert error.splitlines()[-1] == f"error: loss '{PACKAGE}.poly' {sentence}"


@pytest.mark.parametrize("args", [{}, {"epsilon": 3.0}])
def test_the_loss_is_the_packages(outside, args):
    importlib.import_module(PACKAGE)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 8, 8, generator=generator).requires_grad_()
    labels = torch.randint(0, 3, (2, 8, 8), generator=generator).to(torch.uint8)
    labels[0, :3] = 255
    entropy = F.cross_entropy(logits, labels.long(), ignore_index=255, reduction="none")
    likely = logits.softmax(1).gather(1, labels.long().clamp(max=2)[:, None])[:, 0]
    expected = entropy + args.get("epsilon", 1.0) * (1 - likely)
    means = [loss[label != 255].mean() for loss, label in zip(expected, labels, strict=True)]
    result = Criterion(LossConfig(f"{PACKAGE}.poly", args=args))(logits, labels)
    torch.testing.assert_close(result.loss, torch.stack(means).mean())


def test_options_of_a_loss_are_kept_with_the_run(outside, command):
    """They come from the recipe and the command line, and the run goes on with them."""
    options = [f"loss.terms={{{PACKAGE}.poly: 1, focal: 0.5}}", "loss.focal_gamma=1", "loss.args.epsilon=1e1"]
    assert command("train", outside / "fields.yaml", *options[:2], "--out", outside / "run")[0] == 0
    assert command("train", outside / "fields.yaml", *options, "--out", outside / "other")[0] == 0
    stored = yaml.safe_load((outside / "other" / "config.yaml").read_text())["loss"]
    assert (stored["args"], stored["focal_gamma"]) == ({"epsilon": "1e1"}, 1.0)
    assert metrics(outside / "run")[0]["loss"] < metrics(outside / "other")[0]["loss"]
    code, _, error = command("train", outside / "fields.yaml", *options[:2], "--out", outside / "other", "--resume")
    assert code == 2
    assert "its loss.args is {'epsilon': '1e1'}, the command says {}" in error


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("loss.name=nowhere.poly", "loss 'nowhere.poly' cannot be imported (ModuleNotFoundError"),
        ("loss.args.epsilom=2", "unknown key 'loss.args.epsilom'; choose from epsilon"),
        ("loss.args.epsilon=much", "loss.args.epsilon must be a number, got 'much'"),
        ("loss.args=2", "loss.args must hold settings by name, got 2"),
        (f"loss.name={PACKAGE}.poly_loss", f"loss '{PACKAGE}.poly_loss' must be a losspool.segmentation.losses.Loss"),
        (f"data.name={PACKAGE}.open_fields", "must be a losspool.segmentation.data.DatasetKind, got function"),
        (f"model.name={PACKAGE}.CLASSES", "must be callable with the number of classes, got list"),
    ],
)
def test_mistakes_are_one_sentence(outside, command, override, sentence):
    code, _, error = command("train", outside / "fields.yaml", override, "--out", outside / "run")
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1
