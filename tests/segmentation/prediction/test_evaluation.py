"""``losspool evaluate``: the table, the JSON, the options, the mistakes."""

import json
import re
import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from losspool.segmentation.config.schema import DataConfig, EvaluateConfig
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.data.kinds.streets import LOOKS
from losspool.segmentation.prediction.scoring import score
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.runs.run_log import describe_run, source_commit
from small_data import write_folder
from trained_runs import DEEPLAB, assert_mistake, small_config, write_run


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
        expected = score(predict, dataset, range(3), lambda: None, regions=True)
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
