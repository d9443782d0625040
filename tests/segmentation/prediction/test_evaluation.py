"""``losspool evaluate``: scores against counts by hand and the official script, the table, the JSON, the mistakes."""

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from cityscapes_data import official_scores, write_cityscapes
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import Config, DataConfig, EvaluateConfig
from losspool.segmentation.data.kinds.cityscapes import CLASSES as CITYSCAPES
from losspool.segmentation.data.kinds.cityscapes import open_cityscapes
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.data.kinds.streets import LOOKS, Streets
from losspool.segmentation.prediction.evaluation import Spread
from losspool.segmentation.prediction.metrics import iou, mean_iou
from losspool.segmentation.prediction.predict_images import parse_formats, predict_images
from losspool.segmentation.prediction.scoring import score
from losspool.segmentation.prediction.sources import sources_of_split
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.runs.run_log import describe_run, source_commit
from shared_data import shared_data
from small_data import VOID, save, write_folder
from trained_runs import DEEPLAB, assert_mistake, small_config, write_run

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


def test_the_table_and_the_file(tmp_path, command):
    config = small_config(tmp_path / "data", evaluate=EvaluateConfig("efficient", flip=True))
    folder = write_run(tmp_path / "run", config, steps=(5, 10, 12))
    code, output, _ = command("evaluate", folder.path, "--checkpoint", "5,10,12,10", "--model", "tiny_model.build")
    assert code == 0
    path = folder.path / "evaluation-val-efficient-flip-5+10+12.json"
    assert f"written: {path}" in output
    stored = json.loads(path.read_text())
    assert stored["settings"] == {"tiling": "efficient", "scales": [1.0], "flip": True, "zoom": 1.0}
    assert (stored["images"], stored["split"], stored["dataset"]) == (3, "val", "data/val")
    about = describe_run(0, 1)
    assert (stored["version"], stored["commit"]) == (about["version"], about["commit"])
    assert stored["classes"] == ["soil", "weed", "crop plant"]
    dataset = open_folder(tmp_path / "data", "val")
    mious = []
    for step, entry in zip((5, 10, 12), stored["checkpoints"], strict=True):
        predict = (
            TrainedRun.open(folder.path, ["tiny_model.build"])
            .load(step)
            .predictor(EvaluateConfig("efficient", flip=True))
        )
        expected = score(predict, dataset, range(3), nothing, regions=True)
        assert entry["metrics"] == expected.metrics()
        assert entry["step"] == step
        assert entry["confusion"] == expected.matrix.tolist()
        assert entry["iou"] == expected.summary()["iou"]
        for name, line in zip(dataset.names, entry["per_image"], strict=True):
            counts = expected.per_image[name].tolist()
            for region in ("boundary", "interior"):
                counts += expected.regions[region][name].tolist()
            keys = [
                f"{part}{kind}" for part in ("", "boundary_", "interior_") for kind in ("hits", "labelled", "predicted")
            ]
            assert line == {"image": name, **dict(zip(keys, counts, strict=True))}
            assert json.dumps(line) in (text.removesuffix(",") for text in path.read_text().splitlines())
        mious.append(expected.summary()["miou"])
    assert stored["mean"]["miou"] == pytest.approx(np.mean(mious))
    assert stored["std"]["miou"] == pytest.approx(np.std(mious, ddof=1))
    assert stored["std"]["miou"] > 0
    shown = [f"{100 * value:.2f}" for value in mious]
    spread = f"{100 * np.mean(mious):.2f} ± {100 * np.std(mious, ddof=1):.2f}"
    assert re.search(r"mean +" + " +".join(map(re.escape, [*shown, spread])), output)
    columns = [entry["iou"] for entry in stored["checkpoints"]]
    for name, *values in zip(stored["classes"], *columns, strict=True):
        assert re.search(name + " +" + " +".join(f"{100 * value:.2f}" for value in values), output)


def test_other_scores_and_the_confusion_matrix_are_printed(tmp_path, command):
    folder = write_run(tmp_path / "run", small_config(tmp_path / "data"), steps=(5, 10))
    options = ("--checkpoint", "5,10", "--trust", "tiny_model.build")
    code, output, _ = command("evaluate", folder.path, *options, "--confusion")
    assert code == 0
    entries = json.loads((folder.path / "evaluation-val-none-5+10.json").read_text())["checkpoints"]
    assert re.search(
        r"mean over checkpoints +Dice +precision +recall +IoU per image +Dice per image +boundary IoU", output
    )
    names = ("dice", "precision", "recall", "image_iou", "image_dice", "boundary_iou")
    for place, label in enumerate(("soil", "weed", "crop plant")):
        scores = [100 * np.mean([entry["metrics"][name]["classes"][place] for entry in entries]) for name in names]
        assert re.search(label + " +" + " +".join(f"{score:.2f}" for score in scores), output)
    scores = [100 * np.mean([entry["metrics"][name]["mean"] for entry in entries]) for name in names]
    assert re.search("mean +" + " +".join(f"{score:.2f}" for score in scores), output)
    total = np.sum([entry["confusion"] for entry in entries], axis=0)
    for label, row in zip(("soil", "weed", "crop plant"), total, strict=True):
        assert re.search(label + " +" + " +".join(f"{100 * count / row.sum():.1f}" for count in row), output)
    assert "label \\ prediction" in output
    assert "label \\ prediction" not in command("evaluate", folder.path, *options)[1]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_numbers_are_whole_in_every_terminal(tmp_path, command, columns):
    """Columns that do not fit follow below; names are cut, numbers never."""
    root = write_folder(tmp_path / "data", "train", count=1)
    write_folder(root, "val", count=1)
    text = (root / "classes.yaml").read_text()
    (root / "classes.yaml").write_text(text.replace("crop plant", "x" * 90))
    folder = write_run(tmp_path / "run", small_config(root), steps=(5, 10, 12))
    options = ("--checkpoint", "5,10,12", "--confusion", "--trust", "tiny_model.build")
    code, output, _ = command("evaluate", folder.path, *options, columns=columns)
    assert code == 0
    stored = json.loads((folder.path / "evaluation-val-none-5+10+12.json").read_text())
    found = Counter(re.findall(r"(?<!\S)(?:100|\d{1,2})\.\d\d?(?!\S)", output))
    expected: Counter[str] = Counter()
    for entry in stored["checkpoints"]:
        expected.update(f"{100 * value:.2f}" for value in [*entry["iou"], entry["miou"]])
    for name in stored["checkpoints"][0]["metrics"]:
        metrics = [
            [*entry["metrics"][name]["classes"], entry["metrics"][name]["mean"]] for entry in stored["checkpoints"]
        ]
        expected.update(f"{100 * np.mean(values):.2f}" for values in zip(*metrics, strict=True))
    for key in ("mean", "std"):
        expected.update(f"{100 * value:.2f}" for value in [*stored[key]["iou"], stored[key]["miou"]])
    total = np.sum([entry["confusion"] for entry in stored["checkpoints"]], axis=0)
    expected.update(f"{100 * count / row.sum():.1f}" for row in total for count in row)
    assert found == expected
    assert max(map(len, output.splitlines()[1:-1])) <= columns
    assert output.count("boundary IoU") == 1
    assert output.count("\n\n") == len(re.findall(r"^(class|mean over|label)", output, re.MULTILINE))


def test_options_change_the_runs_settings(tmp_path, command):
    folder = write_run(tmp_path / "run", small_config(tmp_path / "data"))
    options = ("--tiling", "optimized", "--scales", "0.5,1.0", "--split", "train", "--checkpoint", "best")
    code, output, _ = command("evaluate", folder.path, *options, "--model", "tiny_model.build")
    assert code == 0
    assert "data/train: 2 images, tiling optimized, scales 0.5, 1.0" in output
    stored = json.loads((folder.path / "evaluation-train-optimized-0.5x1.0-5.json").read_text())
    assert stored["settings"] == {"tiling": "optimized", "scales": [0.5, 1.0], "flip": False, "zoom": 1.0}
    assert stored["std"]["miou"] is None


def test_streets_have_a_recall_per_look(tmp_path, command, monkeypatch):
    monkeypatch.setattr(
        "losspool.segmentation.data.kinds.streets.dataset.SCENE_COUNTS", {"train": 3, "val": 2, "test": 1}
    )
    config = small_config(tmp_path / "data", data=DataConfig("streets", streets_size=(64, 64), streets_train=2))
    folder = write_run(tmp_path / "run", config)
    code, output, _ = command("evaluate", folder.path, "--model", "tiny_model.build")
    assert code == 0
    assert "recall per look" in output
    stored = json.loads((folder.path / "evaluation-val-none-5.json").read_text())
    assert set(stored["checkpoints"][0]["recall_per_look"]) == {look.key for look in LOOKS}


def test_names_cannot_steer_the_terminal(tmp_path, command):
    root = write_folder(tmp_path / "data", "train", count=1)
    write_folder(root, "val", count=1)
    text = (root / "classes.yaml").read_text().replace("soil", '"[red]so\\e[31mil"')
    (root / "classes.yaml").write_text(text)
    folder = write_run(tmp_path / "run", small_config(root))
    code, output, _ = command("evaluate", folder.path, "--model", "tiny_model.build")
    assert code == 0
    assert "\x1b" not in output
    assert r"[red]so\x1b[31mil" in output


MISTAKES = {
    ("nowhere",): "nowhere: the run's folder does not exist",
    ("empty",): "empty: not the folder of a run (it has no config.yaml)",
    ("run",): "the model tiny_model.build is code of another package; if you trust it, pass --trust tiny_model.build",
    ("run", "--model", "tiny_model.build", "--tiling", "wide"): "evaluate.tiling must be one of none, efficient",
    ("run", "--model", "tiny_model.build", "--scales", "1,big"): "scales are numbers such as 0.5,1.0,1.5, got '1,big'",
    ("run", "--model", "tiny_model.build", "--scales", "0"): "evaluate.scales[0] must be greater than 0, got 0.0",
    ("run", "--model", "tiny_model.build", "--checkpoint", "6"): "no checkpoint of step 6",
    ("run", "--model", "tiny_model.build", "--split", "test"): "no such folder, and no list test.txt",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes(tmp_path, command, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "run", small_config(tmp_path / "data"))
    assert_mistake(command("evaluate", *arguments), MISTAKES[arguments])


def test_a_checkpoint_of_another_model(tmp_path, command):
    config = small_config(tmp_path / "data")
    run = write_run(tmp_path / "run", config).path
    write_run(tmp_path / "other", small_config(tmp_path / "data", model=DEEPLAB))
    (tmp_path / "other/checkpoints/step-0000005.pt").rename(run / "checkpoints/step-0000006.pt")
    reported = (
        "a checkpoint of another model: it holds deeplabv2_mobilenetv2 with output stride 16, the run uses tiny_model"
    )
    assert_mistake(command("evaluate", run, "--model", "tiny_model.build"), reported)


def test_a_checkpoint_whose_weights_are_of_another_model(tmp_path, command):
    weights = {"model": {"0.weight": torch.zeros(3)}}
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"), **weights).path
    result = command("evaluate", run, "--model", "tiny_model.build")
    assert_mistake(result, "step-0000005.pt: the checkpoint does not fit its own model")


def test_other_classes_than_the_networks(tmp_path, command):
    classes = [{"name": name, "color": [1, 2, 3]} for name in ("soil", "crop plant", "weed")]
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"), classes=classes).path
    reported = "data/val: its classes are soil, weed, crop plant, the network's are soil, crop plant, weed"
    assert_mistake(command("evaluate", run, "--model", "tiny_model.build"), reported)


def test_the_commit_is_of_our_own_source(tmp_path, monkeypatch):
    """Not of a repository that it was installed into."""
    source = tmp_path / "repository/.venv/journal.py"
    source.parent.mkdir(parents=True)
    source.touch()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", source.parent.parent]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "theirs"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr("losspool.segmentation.runs.run_log.__file__", str(source))
    assert source_commit() is None
    built = tmp_path / "_commit.txt"
    monkeypatch.setattr("losspool.segmentation.runs.run_log._BUILT_FROM", built)
    built.write_text("c0ffee+\n")
    assert source_commit() == "c0ffee+"  # as setup.py stored it
    subprocess.run([*git, "add", source], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "ours"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert source_commit() == head
    source.write_text("changed")
    assert source_commit() == f"{head}+"


def test_a_broken_image_is_named(tmp_path, command):
    run = write_run(tmp_path / "run", small_config(tmp_path / "data")).path
    image = tmp_path / "data/images/val/001.png"
    image.write_bytes(image.read_bytes()[:200])
    assert_mistake(command("evaluate", run, "--model", "tiny_model.build"), f"{image}: the image cannot be decoded")


def test_a_broken_image_that_is_skipped_has_no_counts(tmp_path, command):
    config = small_config(tmp_path / "data")
    run = write_run(tmp_path / "run", replace(config, data=replace(config.data, skip_broken=True))).path
    image = tmp_path / "data/images/val/001.png"
    image.write_bytes(image.read_bytes()[:200])
    assert command("evaluate", run, "--model", "tiny_model.build")[0] == 0
    (entry,) = json.loads((run / "evaluation-val-none-5.json").read_text())["checkpoints"]
    assert [line["image"] for line in entry["per_image"]] == ["000", "002"]
    assert entry["skipped"] == 1


def test_a_name_that_is_no_text_is_kept(tmp_path, command):
    run = write_run(tmp_path / "run", small_config(tmp_path / "data")).path
    for kind in ("images", "labels"):
        (tmp_path / f"data/{kind}/val/001.png").rename(tmp_path / f"data/{kind}/val/\udcff1.png")
    assert command("evaluate", run, "--model", "tiny_model.build")[0] == 0
    (entry,) = json.loads((run / "evaluation-val-none-5.json").read_text(encoding="utf-8"))["checkpoints"]
    assert {line["image"] for line in entry["per_image"]} == {"000", "002", "\udcff1"}
