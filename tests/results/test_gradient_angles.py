"""Gradients of several losses at the same weights, against autograd of the plain formulas."""

import pytest
import torch
import torch.nn.functional as F

from losspool.segmentation.models import enlarge
from losspool.segmentation.prediction import TrainedRun
from result_scripts import refused, script
from runs_for_tests import train, write_recipe

gradient_angles = script("gradient_angles")
NETWORK = "tiny_model.build_plain"


@pytest.fixture
def run(tmp_path):
    settings = ("train.steps=1", "data.crop=[40, 48]", "data.val=null", "method=base", f"model.name={NETWORK}")
    train(write_recipe(tmp_path), tmp_path / "run", *settings)
    return tmp_path / "run"


def test_the_lengths_and_angles_of_vectors():
    """By hand: twice as long in the same direction, and twice as long at a right angle."""
    base, other = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 6.0])
    found = gradient_angles.compare({"cross_entropy": base, "lmp": 2 * base, "ohem": other})
    assert found == {"cross_entropy": (1, 1), "lmp": (2, 1), "ohem": (2, 0)}


def test_the_gradients_are_those_of_the_losses(run):
    trained = TrainedRun.open(run, [NETWORK]).load_one("last")
    dataset = trained.config.data.open("train")
    ((images, labels),) = gradient_angles.batches(trained.config, dataset, 1)
    assert torch.equal(labels[1], torch.from_numpy(dataset.label(5)[:, 6:54].copy()))
    found = gradient_angles.gradients(trained, ["cross_entropy", "bootstrapping"], images, labels)

    module, spec = trained.model.module, trained.model.spec
    logits = enlarge(module(spec.preprocessing.apply(images)), labels.shape[1:], spec.logit_stride)
    entropy = F.cross_entropy(logits, labels.long(), ignore_index=255, reduction="none")
    losses = [each[label != 255] for each, label in zip(entropy, labels, strict=True)]
    means = {
        "cross_entropy": torch.stack([each.mean() for each in losses]).mean(),
        "bootstrapping": torch.stack([each.topk(len(each) // 4).values.mean() for each in losses]).mean(),
    }
    for name, mean in means.items():
        parts = torch.autograd.grad(mean, list(module.parameters()), retain_graph=True)
        expected = torch.cat([part.flatten() for part in parts]).double()
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)
    assert gradient_angles.compare(found)["bootstrapping"][1] < 0.99


def test_mistakes_are_one_sentence(run):
    main = gradient_angles.main
    assert "without class frequencies, got 'median_frequency'" in refused(main, run, "--loss", "median_frequency")
    assert "no checkpoint of step 7" in refused(main, run, "--loss", "lmp", "--checkpoint", 7)
