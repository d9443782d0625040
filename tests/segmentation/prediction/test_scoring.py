"""Scores of a split: against counts by hand, and the official script of Cityscapes."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from cityscapes_data import official_scores, write_cityscapes
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import Config, DataConfig
from losspool.segmentation.data.kinds.cityscapes import CLASSES as CITYSCAPES
from losspool.segmentation.data.kinds.cityscapes import open_cityscapes
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.data.kinds.streets import LOOKS, Streets
from losspool.segmentation.prediction.evaluation import Spread
from losspool.segmentation.prediction.metrics import iou, mean_iou
from losspool.segmentation.prediction.predict_images import parse_formats, predict_images
from losspool.segmentation.prediction.scoring import score
from losspool.segmentation.prediction.sources import sources_of_split
from shared_data import shared_data
from small_data import VOID, save, write_folder
from trained_runs import DEEPLAB, write_run

TRAIN = 31
"""Cityscapes' id of the class train."""


def guess(image):
    """A prediction from the colours alone."""
    return (np.array(image).sum(2) // 257 % 3).astype(np.uint8)


def nothing():
    pass


def test_scores_are_counts_over_valid_pixels(tmp_path):
    dataset = open_folder(write_folder(tmp_path, "val", count=4), "val")
    scores = score(guess, dataset, range(4), nothing)
    for label in range(3):
        hits = labelled = guessed = 0
        for index in range(4):
            truth, found = dataset.label(index), guess(dataset.image(index))
            valid = truth != 255
            hits += int(((truth == label) & (found == label)).sum())
            labelled += int((truth == label).sum())
            guessed += int(((found == label) & valid).sum())
        assert scores.summary()["iou"][label] == hits / (labelled + guessed - hits)
    halves = [score(guess, dataset, part, nothing).matrix for part in (range(0, 4, 2), range(1, 4, 2))]
    assert (sum(halves) == scores.matrix).all()
    assert set(scores.summary()) == {"miou", "iou", "pixels"}  # a line of metrics.jsonl, which knows no single images


def test_counts_of_each_image(tmp_path):
    dataset = open_folder(write_folder(tmp_path, "val", count=4), "val")
    found = score(guess, dataset, (3, 1), nothing).per_image
    assert list(found) == [dataset.names[3], dataset.names[1]]
    for index in (3, 1):
        truth, guessed = dataset.label(index).ravel().tolist(), guess(dataset.image(index)).ravel().tolist()
        pairs = [pair for pair in zip(truth, guessed, strict=True) if pair[0] != 255]
        hits, labelled, predicted = found[dataset.names[index]].tolist()
        for label in range(3):
            assert hits[label] == pairs.count((label, label))
            assert labelled[label] == sum(of_label == label for of_label, _ in pairs)
            assert predicted[label] == sum(of_guess == label for _, of_guess in pairs)
        assert labelled != predicted


def test_each_image_is_announced_and_an_exception_stops(tmp_path):
    dataset = open_folder(write_folder(tmp_path, "val", count=3), "val")
    calls = []

    def watch():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(guess, dataset, range(3), watch)
    assert len(calls) == 2


def test_recall_per_look_of_streets():
    dataset = Streets("val", size=(64, 64), count=12)
    truth = {dataset.image(index).tobytes(): dataset.label(index) for index in range(12)}
    looks = np.concatenate([dataset.looks(index).ravel() for index in range(12)])

    def all_but_the_first_look(image):
        labels = truth[image.tobytes()].copy()
        index = list(truth).index(image.tobytes())
        labels[dataset.looks(index) == 1] = 0
        return np.where(labels == 255, 0, labels).astype(np.uint8)

    recall = score(all_but_the_first_look, dataset, range(12), nothing).summary()["recall_per_look"]
    assert list(recall) == [look.key for look in LOOKS]
    for number, look in enumerate(LOOKS, start=1):
        there = (looks == number).any()
        assert recall[look.key] == ((0.0 if number == 1 else 1.0) if there else None)
    assert (looks == 1).any()


def test_nothing_but_void_is_an_error(tmp_path):
    root = write_folder(tmp_path, "val", count=1, size=(4, 4))
    save(root / "labels/val/000.png", np.full((4, 4), VOID))
    with pytest.raises(UserError, match="nothing to score"):
        score(guess, open_folder(root, "val"), range(1), nothing).summary()


def test_the_papers_spread():
    """Table 1, p = 1.2."""
    assert str(Spread.of([0.7435, 0.7464, 0.7464])) == "74.54 ± 0.17"
    assert Spread.of([0.5]) == Spread(0.5, None)


@pytest.mark.parametrize("frames", ["generated", "real"])
def test_cityscapes_scores_equal_the_official_ones(tmp_path, command, frames):
    """From the same prediction files, through the commands."""
    data = tmp_path / "data"
    if frames == "generated":
        write_cityscapes(data)
    else:  # its labelTrainIds, which we would read, differ from its labelIds, which the script reads
        shutil.copytree(shared_data("cityscapes-one-frame"), data, ignore=shutil.ignore_patterns("*TrainIds.png"))
    config = Config(data=DataConfig("cityscapes", str(data), train="val"), model=DEEPLAB)
    run = write_run(tmp_path / "run", config, split="val").path
    out = tmp_path / "predictions"
    for tiling in ("none", "efficient"):
        assert (
            command("predict", run, "--split", "val", "--format", "cityscapes", "--tiling", tiling, "--out", out)[0]
            == 0
        )
        assert command("evaluate", run, "--tiling", tiling)[0] == 0
        ours = json.loads((run / f"evaluation-val-{tiling}-5.json").read_text())
        theirs, mean = official_scores(data, out)
        compared = 0
        for name, value in zip(ours["classes"], ours["checkpoints"][0]["iou"], strict=True):
            assert (value is None) == np.isnan(theirs[name])
            assert value is None or value == pytest.approx(theirs[name], abs=1e-9), name
            compared += value is not None
        assert compared == 19 or frames == "real"
        assert ours["checkpoints"][0]["miou"] == pytest.approx(mean, abs=1e-9)
        assert mean > 0


def test_cityscapes_scores_of_good_predictions_equal_the_official_ones(tmp_path):
    """Predictions that are right in most places, of every class but two, one of which no label holds."""
    data = write_cityscapes(tmp_path / "data", count=4)
    for path in data.glob("gtFine/val/*/*.png"):
        label = np.array(Image.open(path))
        save(path, np.where(label == TRAIN, 0, label))
    dataset = open_cityscapes(data, "val")
    truth = {dataset.image(index).tobytes(): dataset.label(index) for index in range(4)}

    def mostly_right(image):
        labels = truth[image.tobytes()]
        random = np.random.default_rng(int(labels.sum()))
        noise = random.integers(0, 16, labels.shape)
        return np.where((random.random(labels.shape) < 0.2) | (labels > 15), noise, labels).astype(np.uint8)

    formats = parse_formats(["cityscapes"], CITYSCAPES, False)
    predict_images(mostly_right, sources_of_split(dataset, [], False), tmp_path / "out", formats, CITYSCAPES)
    theirs, mean = official_scores(data, tmp_path / "out")
    matrix = score(mostly_right, dataset, range(4), nothing).matrix
    for info, value in zip(CITYSCAPES, iou(matrix), strict=True):
        assert value == pytest.approx(theirs[info.name], abs=1e-9, nan_ok=True), info.name
    assert np.isnan(theirs["train"])
    assert theirs["bicycle"] == 0
    assert mean_iou(matrix) == pytest.approx(mean, abs=1e-9)
