"""``losspool predict --weights``: the weights that a run's loss gives, against plain formulas."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import losspool
from losspool.segmentation.config.schema import DataConfig, LossConfig
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.prediction.pictures import heat_image
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.prediction.weight_maps import WeightMap, weigher_of
from small_data import CLASSES
from trained_runs import MODEL, picture, small_config, write_run, written


def expected_weights(run, dataset, index, **options):
    """Of an image, by the plain function on the enlarged logits; times the number of valid pixels."""
    trained = TrainedRun.open(run.path, ["tiny_model.build"]).load(5)
    image = torch.from_numpy(np.array(dataset.image(index)))[None]
    with torch.no_grad():
        coarse = trained.model.module(trained.model.spec.preprocessing.apply(image))
    label = torch.from_numpy(dataset.label(index).copy()).long()
    logits = F.interpolate(coarse, label.shape, mode="bilinear")
    losses = F.cross_entropy(logits, label[None], ignore_index=255, reduction="none")
    weights = losspool.pooling_weights(losses, mask=(label != 255)[None], **options)[0]
    return (weights * (label != 255).sum()).numpy(), label.numpy()


def test_the_weights_of_lmp(tmp_path, command):
    run = write_run(tmp_path / "run", small_config(tmp_path / "data", loss=LossConfig(p=1.7, m="30%")))
    dataset = open_folder(tmp_path / "data", "val")
    weights, label = expected_weights(run, dataset, 1, p=1.7, m=0.3)
    opened = TrainedRun.open(run.path, ["tiny_model.build"])
    trained = opened.load(5)
    weigh = weigher_of(opened, trained.predictor(trained.config.evaluate))
    found = weigh(dataset.image(1), dataset.label(1), 1)
    assert np.abs(found.weights - weights).max() < 1e-4
    assert (found.weights[label == 255] == 0).all()
    assert 1 < found.weights.max() < 0.3 ** (-1 / 1.7) + 1e-4  # τ·n
    saturated = (weights > weights.max() * (1 - 1e-6)).sum() / (label != 255).sum()
    assert found.saturated == pytest.approx(saturated, abs=2 / label.size)

    image = tmp_path / "data/images/val/001.png"
    ways = ([image], ["--split", "val", "--name", "001"], [image, "--split", "val"])
    for number, source in enumerate(ways):
        out = tmp_path / f"out {number}"
        code, output, _ = command("predict", run.path, *source, "--out", out, "--weights", "--no-ids", *MODEL)
        assert code == 0
        assert written(out) == {f"001_{kind}.png" for kind in ("palette", "overlay", "weights", "weights-overlay")}
        assert f"001: α = {found.alpha:.4g}, {100 * found.saturated:.2f} % of the pixels saturated" in output
        for value, entry in enumerate(CLASSES):
            share = 100 * (label == value).sum() / (label != 255).sum()
            mass = 100 * weights[label == value].sum() / weights.sum()
            shown = re.search(rf"{entry['name']} +([\d.]+) +([\d.]+)", output).groups()
            assert [float(text) for text in shown] == pytest.approx([share, mass], abs=0.0051)
        heat = heat_image(found.weights, max(2.0, found.weights.max()), label == 255)
        assert (np.array(picture(out / "001_weights.png")) == np.array(heat)).all()
        grey = np.array(dataset.image(1).convert("L")).astype(float)[..., None]
        overlay = np.array(picture(out / "001_weights-overlay.png"))
        assert np.abs(overlay - (grey + np.array(heat)) / 2).max() <= 1


@pytest.mark.parametrize("name", ["cross_entropy", "inverse_frequency", "focal", "random_pixels", "bootstrapping"])
def test_the_weights_of_the_other_losses(tmp_path, command, name):
    data = DataConfig("folder", str(tmp_path / "data"), cache=str(tmp_path / "cache"))
    run = write_run(tmp_path / "run", small_config(tmp_path / "data", data=data, loss=LossConfig(name)))
    dataset = open_folder(tmp_path / "data", "val")
    opened = TrainedRun.open(run.path, ["tiny_model.build"])
    trained = opened.load(5)
    weigh = weigher_of(opened, trained.predictor(trained.config.evaluate))
    found = weigh(dataset.image(0), dataset.label(0), 0)
    valid = dataset.label(0) != 255
    weights = found.weights[valid]
    assert not found.weights[~valid].any()
    if name == "cross_entropy":
        assert weights == pytest.approx(1, abs=1e-5)
    elif name == "inverse_frequency":
        train = np.concatenate([open_folder(tmp_path / "data", "train").label(index).ravel() for index in range(2)])
        for label in range(3):
            expected = (train != 255).sum() / (train == label).sum() / 3
            assert found.weights[dataset.label(0) == label] == pytest.approx(expected, rel=1e-4)
    elif name == "focal":
        assert (weights >= 0).all()
        assert weights.max() <= 1 + 1e-5
        assert weights.std() > 0.05
    else:
        assert weights.mean() == pytest.approx(1, rel=1e-4)
        assert np.isin(weights.round(1), (0, 4)).mean() > 0.99  # a quarter of the pixels; the last one may count less
    assert (found.alpha is None) == (name != "bootstrapping")
    code, output, _ = command("predict", run.path, "--weights", "--name", "000", "--out", tmp_path / "out", *MODEL)
    assert code == 0
    assert ("α" in output) == (name == "bootstrapping")


def test_heat_is_viridis():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib holds the true colours")
    values = np.linspace(0, 3, 256)[None]
    truth = np.array(matplotlib.colormaps["viridis"].colors) * 255
    found = np.array(heat_image(values, 3.0, np.zeros((1, 256), bool)))[0]
    assert np.abs(found - truth).max() < 8
    assert np.abs(found[::17] - truth[::17]).max() <= 0.51
    beyond = np.array(heat_image(np.array([[9.0, 9.0]]), 3.0, np.array([[False, True]])))
    assert beyond.tolist() == [[[253, 231, 37], [0, 0, 0]]]


def test_the_scale_of_the_plain_mean():
    found = WeightMap(np.ones((2, 2), np.float32), np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.uint8), None, None)
    assert found.top == 2
    assert found.shares(2)[1].tolist() == [1, 0]
