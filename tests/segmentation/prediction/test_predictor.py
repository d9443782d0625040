"""Whole images, tile by tile and strip by strip, against full maps made the slow way."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from losspool.ops import enlarged_strips
from losspool.segmentation.config.schema import EvaluateConfig
from losspool.segmentation.models import Preprocessing, build_model, enlarge
from losspool.segmentation.models.preprocessing import IMAGENET
from losspool.segmentation.prediction.predictor import Predictor
from paper_tiles import deciding_tile, rectangles
from trained_runs import enliven, random_image

CLASSES = 5
BGR = Preprocessing(mean=(0.4, 0.45, 0.5), std=(0.3, 0.25, 0.2), scale=1 / 255, bgr=True)


@pytest.fixture(scope="module")
def network():
    """Small, with a stride and padding, so that a tile's border changes what it says."""
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 6, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=6, dilation=6),
        nn.ReLU(),
        nn.Conv2d(6, CLASSES, 1),
    )
    module = nn.Sequential(*layers).eval()
    enliven(module)
    return module


def coarse_map(network, image, preprocessing=IMAGENET):
    """(1, C, h, w) logits of the image in one piece, in float64."""
    pixels = np.array(image).astype(np.float64)  # (H, W, 3)
    pixels = pixels[:, :, ::-1] if preprocessing.bgr else pixels
    ready = (pixels * preprocessing.scale - np.array(preprocessing.mean)) / np.array(preprocessing.std)
    with torch.no_grad():
        logits = copy.deepcopy(network).double()(torch.from_numpy(ready.transpose(2, 0, 1).copy())[None])
    return logits


def full_map(logits, size):
    """(C, H, W), by torch's own enlargement."""
    return F.interpolate(logits, size, mode="bilinear", align_corners=False)[0]


def assert_labels(labels, scores, clear=1e-4):
    """``labels`` are the arg-max of the true scores (C, H, W); where two scores nearly tie, either may win."""
    scores = scores.numpy()
    best = np.sort(scores, 0)
    decided = best[-1] - best[-2] > clear
    assert decided.mean() > 0.99
    assert labels.dtype == np.uint8
    assert (labels == scores.argmax(0))[decided].all()
    assert len(np.unique(labels)) > 1 or labels.size < 2000


@pytest.mark.parametrize("tiling", ["none", "efficient", "optimized"])
@pytest.mark.parametrize(("height", "width"), [(40, 1203), (33, 1001), (64, 640), (21, 217), (25, 150), (1, 7), (3, 3)])
def test_stitched_labels_follow_the_papers_rule(network, tiling, height, width):
    image = Image.fromarray(random_image(height, width, seed=width))
    tiles = rectangles(width, tiling)
    maps = [
        full_map(coarse_map(network, image.crop((left, 0, right, height))), (height, right - left))
        for left, right in tiles
    ]
    truth = torch.empty(CLASSES, height, width, dtype=torch.float64)
    for column in range(width):
        number = deciding_tile(column, tiles)
        truth[:, :, column] = maps[number][:, :, column - tiles[number][0]]
    assert_labels(Predictor(network, IMAGENET, config=EvaluateConfig(tiling))(image), truth)


def test_tiles_matter(network):
    """Else the test above would not tell tilings apart."""
    image = Image.fromarray(random_image(40, 1203, seed=1203))
    found = [Predictor(network, IMAGENET, config=EvaluateConfig(tiling))(image) for tiling in ("none", "efficient")]
    assert (found[0] != found[1]).sum() > 20


@pytest.mark.parametrize("tiling", ["none", "optimized"])
@pytest.mark.parametrize("preprocessing", [IMAGENET, BGR], ids=["rgb", "bgr"])
def test_scales_and_flips_average_probabilities(network, tiling, preprocessing):
    height, width = 45, 333
    image = Image.fromarray(random_image(height, width, seed=3))
    config = EvaluateConfig(tiling, scales=(0.5, 1.0, 1.5), flip=True)
    tiles = rectangles(width, tiling)
    truth = torch.zeros(CLASSES, height, width, dtype=torch.float64)
    for number, (left, right) in enumerate(tiles):
        part = image.crop((left, 0, right, height))
        total = torch.zeros(CLASSES, height, right - left, dtype=torch.float64)
        for scale in config.scales:
            resized = part.resize((round((right - left) * scale), round(height * scale)), Image.Resampling.BILINEAR)
            mirrored = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            for picture, flip in ((resized, False), (mirrored, True)):
                logits = coarse_map(network, picture, preprocessing)
                total += full_map(logits.flip(3) if flip else logits, (height, right - left)).softmax(0)
        for column in range(left, right):
            if deciding_tile(column, tiles) == number:
                truth[:, :, column] = total[:, :, column - left]
    assert_labels(Predictor(network, preprocessing, config=config)(image), truth)


def test_zoom_is_the_scale_of_training(network):
    image = Image.fromarray(random_image(60, 90, seed=4))
    smaller = image.resize((45, 30), Image.Resampling.BILINEAR)
    truth = full_map(coarse_map(network, smaller), (60, 90))
    assert_labels(Predictor(network, IMAGENET, zoom=0.5)(image), truth)


def test_deeplab_on_an_image_of_odd_size():
    """Its cells are of 16 pixels, of which the image cuts the last ones."""
    torch.manual_seed(1)
    model = build_model("deeplabv2_mobilenetv2", CLASSES, output_stride=16)
    enliven(model.module)
    image = Image.fromarray(random_image(65, 131, seed=5))
    config = EvaluateConfig("efficient")
    found = Predictor(model.module, model.spec.preprocessing, stride=16, config=config)(image)
    parts = []
    for left, right in rectangles(131, "efficient"):
        coarse = coarse_map(model.module, image.crop((left, 0, right, 65)))
        assert coarse.shape[2] == 5
        parts.append(full_map(coarse, (80, 16 * coarse.shape[3]))[:, :65, : right - left])
    assert_labels(found, torch.cat(parts, 2))


@pytest.mark.parametrize("size", [(64, 96), (65, 97), (71, 90), (79, 111)])
@pytest.mark.parametrize(("zoom", "flip"), [(1.0, False), (1.0, True), (2.0, False), (0.5, True)])
def test_a_cell_stands_for_the_same_place_in_images_of_every_size(size, zoom, flip):
    """A network of stride 8 that looks at pixel 8i: it is off by 3.5 pixels of its own, everywhere, in every image."""
    height, width = size
    ramp = np.stack(np.broadcast_arrays(np.arange(height)[:, None], np.arange(width)), 2)
    image = Image.fromarray(np.concatenate([ramp, ramp[:, :, :1] * 0], 2).astype(np.uint8))
    exact = Preprocessing((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), scale=1.0, bgr=False)
    predict = Predictor(lambda x: x[:, :, ::8, ::8], exact, stride=8, zoom=zoom)
    found = torch.cat([rows.clone() for _, rows in predict._strips(image, 1.0, flip)], 1)
    inside = np.s_[int(8 / zoom) + 8 : -int(8 / zoom) - 8]
    down, across = (found[axis].numpy() - ramp[:, :, axis] for axis in (0, 1))
    off = 3.5 / zoom
    rounding = 0.02 if zoom == 1 else 0.6  # a ramp of another size has whole levels, too
    np.testing.assert_allclose(down[inside, inside], -off, atol=rounding)
    np.testing.assert_allclose(across[inside, inside], off if flip else -off, atol=rounding)


@pytest.mark.parametrize("size", [(7, 5), (64, 48), (100, 90), (3, 200), (1, 1)])
def test_strips_are_rows_of_the_enlarged_map(size, monkeypatch):
    monkeypatch.setattr("losspool.ops.logits._CPU_BLOCK", 700)
    coarse = torch.randn(1, CLASSES, 7, 5, generator=torch.Generator().manual_seed(0))
    expected = enlarge(coarse, size, None)[0]
    made = [(rows, logits.clone()) for rows, logits in enlarged_strips(coarse, size)]
    assert [row for rows, _ in made for row in range(rows.start, rows.stop)] == list(range(size[0]))
    assert all(logits.numel() <= max(700, CLASSES * size[1]) for _, logits in made)
    assert torch.allclose(torch.cat([logits for _, logits in made], 1), expected, atol=1e-6)


@pytest.mark.parametrize(("size", "cells"), [((31, 47), (3.875, 5.875)), ((50, 33), (6.25, 4.125)), ((9, 9), (1.1, 2))])
def test_strips_of_an_image_that_cuts_its_last_cells(size, cells):
    """Each pixel against the two cells that it lies between, by the definition and in float64."""
    coarse = torch.randn(1, CLASSES, 7, 6, generator=torch.Generator().manual_seed(0))
    made = torch.cat([logits.clone() for _, logits in enlarged_strips(coarse, size, cells)], 1)
    grids = []
    for pixels, spanned, there in zip(size, cells, coarse.shape[2:], strict=True):
        places = ((torch.arange(pixels).double() + 0.5) * spanned / pixels - 0.5).clamp(0, there - 1)
        low = places.floor().long()
        grid = torch.zeros(pixels, there, dtype=torch.float64)
        grid[torch.arange(pixels), low] += 1 - (places - low)
        grid[torch.arange(pixels), (low + 1).clamp(max=there - 1)] += places - low
        grids.append(grid)
    expected = grids[0] @ coarse[0].double() @ grids[1].T
    assert torch.allclose(made.double(), expected, atol=1e-5)


def test_a_class_that_is_ruled_out_stays_ruled_out():
    coarse = torch.zeros(1, 3, 8, 8)
    coarse[:, 0] = -torch.inf
    coarse[:, 1, 2:4] = 5
    labels = torch.cat([logits.clone() for _, logits in enlarged_strips(coarse, (32, 32))], 1).argmax(0)
    assert 0 not in labels
    assert (labels[8:16] == 1).all()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status to see a process's memory")
def test_memory_of_a_cityscapes_image():
    """Less than 1.3 tiles' logits beyond the network's own; of one pass less than a tile's in all."""
    script = Path(__file__).parents[2] / "scripts" / "prediction_memory.py"
    # Freed memory goes back at once, so that the resident size is what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    for case, found in json.loads(done.stdout).items():
        assert found["own"] > 7e6, f"{case}: the measurement sees nothing"
        assert found["whole"] - found["own"] < 1.3 * found["tile"], case
        assert case not in ("one pass", "efficient") or found["whole"] < found["tile"], case
