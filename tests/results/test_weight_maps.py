"""The figure of weight maps: every network is weighed with the same loss, by the product's own weigher."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import losspool
from losspool.segmentation.config.schema import LossConfig
from losspool.segmentation.prediction.trained_run import TrainedRun
from result_scripts import refused, script
from trained_runs import DEEPLAB, small_config, write_run

weight_maps = script("weight_maps")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    config = small_config(folder / "data", model=DEEPLAB)
    plain = replace(config, method="base", loss=LossConfig("cross_entropy"))
    return [write_run(folder / each.method, each, steps=(3, 5)) for each in (plain, config)]


def arguments(runs, out, *checkpoints, names=("000",)):
    words = [*(run.path for run in runs), "--split", "val", "--out", out]
    words += [word for step in checkpoints for word in ("--checkpoint", step)]
    return [str(word) for word in [*words, *(word for name in names for word in ("--name", name))]]


def test_the_plain_run_is_weighed_with_the_loss_of_the_other(runs):
    network = TrainedRun.open(runs[0].path).load_one("5")
    dataset = network.config.data.open("val")
    (shown,) = weight_maps.examples(dataset, dataset.names[:1])
    (found,) = weight_maps.weigh(network, LossConfig("lmp", 1.3, "25%"), [shown])
    with torch.no_grad():
        coarse = network.model.module(
            network.model.spec.preprocessing.apply(torch.from_numpy(np.array(shown.image))[None])
        )
    height, width = shown.label.shape
    labels = np.full((16 * coarse.shape[2], 16 * coarse.shape[3]), 255)  # what the cells cover
    labels[:height, :width] = shown.label
    stats = losspool.PoolingStats()
    labels = torch.from_numpy(labels)[None]
    losspool.upsampled_cross_entropy(coarse, labels, p=1.3, m=0.25, ignore_index=255, stats=stats)
    valid = int((shown.label != 255).sum())
    expected = stats.weights[0, :height, :width].numpy() * valid
    np.testing.assert_allclose(found.weights, expected, rtol=1e-3, atol=1e-5)
    assert found.weights.max() > 2 * found.weights[shown.label != 255].mean()


def test_the_figure(runs, tmp_path, capsys):
    names = TrainedRun.open(runs[0].path).load_one("last").config.data.open("val").names[:2]
    weight_maps.main(arguments(runs, tmp_path / "maps.png", "3", "last", names=names))
    assert capsys.readouterr().out == f"{tmp_path / 'maps.png'}\n"
    with Image.open(tmp_path / "maps.png") as picture:
        assert picture.width > 1000
    weight_maps.main(arguments(runs, tmp_path / "maps.svg", "3", "last", names=names))
    text = (tmp_path / "maps.svg").read_text()
    for title in ("base, step 3", "lmp, step 3", "base, step 5", "lmp, step 5", "p = 1.3, m = 25%"):
        assert title in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda runs, out: arguments(runs[::-1], out, "last"), "the last run must pool its loss"),
        (lambda runs, out: arguments(runs, out, "4"), "no checkpoint of step 4"),
        (lambda runs, out: arguments([*runs, runs[1]], out, "last"), "would both be called 'lmp, step 5'"),
        (lambda runs, out: arguments(runs, out, "5", "last"), "would both be called 'base, step 5'"),
        (lambda runs, out: arguments(runs, out, "last", names=("nobody",)), "there is no image 'nobody'"),
        (lambda runs, out: arguments(runs, out.with_suffix(".bmp"), "last"), "--out must end in .png or .svg"),
    ],
)
def test_mistakes(runs, tmp_path, change, words):
    assert words in refused(weight_maps.main, *change(runs, tmp_path / "maps.png"))
    assert not (tmp_path / "maps.png").exists()
