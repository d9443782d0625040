"""The report's file: its numbers are those of metrics.jsonl, its names are text, and it asks for nothing."""

import base64
import hashlib
import json
import re
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import losspool.lab.report
from lab_runs import CLASSES, lab_config, statistics_of, write_lab, write_lab_run
from lab_tables import tables
from losspool.lab.comparison import evenly
from losspool.lab.report import write_report
from losspool.lab.report.build import escaped_json
from losspool.lab.report.data import thinned
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import DataConfig
from losspool.segmentation.data.protocol import ClassInfo
from plain_bootstrap import LAB_BLOCKS, plain_intervals, stored_counts
from plain_metrics import STEPS, interval, lines, score
from report_parts import Parts, report


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def seeds_of(lab: Path, method: str) -> list[Path]:
    return [lab / f"{method}-s{seed}" for seed in range(3)]


def test_scores_and_gains(lab, data):
    base, lmp = data["variants"]
    assert (base["label"], base["baseline"], base["gain"], base["class_gains"]) == ("base", True, None, [])
    assert (lmp["label"], lmp["baseline"], lmp["seeds"]) == ("lmp", False, [0, 1, 2])
    for variant in (base, lmp):
        scores = [score(run) for run in seeds_of(lab, variant["label"])]
        assert variant["score"] == near({"mean": statistics.mean(scores), "std": statistics.stdev(scores)})
        assert variant["spread_over"] == "seeds"
    pairs = zip(seeds_of(lab, "lmp"), seeds_of(lab, "base"), strict=True)
    mean, low, high = interval([score(ours) - score(theirs) for ours, theirs in pairs])
    assert lmp["gain"] == near({"mean": mean, "low": low, "high": high, "pairs": 3})


def test_intervals_over_images(tmp_path, data):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    base, lmp = report(root, source="test").data["variants"]
    sides = ([stored_counts(root / f"{method}-s{seed}") for seed in (0, 1)] for method in ("lmp", "base"))
    low, high = plain_intervals(*sides, LAB_BLOCKS)[0]
    assert lmp["over_images"] == pytest.approx({"low": low, "high": high}, abs=1e-6)
    assert base["over_images"] is None
    assert base["over_both"] is None
    assert lmp["over_both"]["low"] < min(low, lmp["gain"]["mean"]) < high < lmp["over_both"]["high"]
    assert [variant["over_images"] for variant in data["variants"]] == [None, None]


def test_other_scores_are_those_of_the_tables(tmp_path, data):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    found = report(root, source="test").data
    known = statistics_of(root, source="test")
    for variant, shown in zip(known.comparison.variants, found["variants"], strict=True):
        scores = known.metrics(variant)
        assert list(shown["metrics"]) == list(scores) == [metric["key"] for metric in found["metrics"]]
        for key, spreads in scores.items():
            assert shown["metrics"][key] == [{"mean": each.mean, "std": each.std} for each in spreads]
        assert np.array(shown["confusion"]) == pytest.approx(known.confusion(variant), rel=1e-4)
    assert data["metrics"] == []  # the validation in training does not count single images
    assert [(each["metrics"], each["confusion"]) for each in data["variants"]] == [({}, None)] * 2


def test_a_black_class_is_told_from_void(tmp_path):
    classes = (ClassInfo("background", (0, 0, 0)), *CLASSES[1:])
    for method in ("base", "lmp"):
        write_lab_run(tmp_path / "runs" / method, lab_config(method), classes=classes)
    assert report(tmp_path / "runs").data["void"] == "#e0e0c0"


def test_classes(lab, data):
    assert [(info["name"], info["pixels"]) for info in data["classes"]] == [
        ("road", 400_000),
        ("building", 350_000),
        ("pole", 0),
        ("traffic sign", 1_500),
        ("rider", 400),
    ]
    assert data["classes"][3]["color"] == "#dcdc00"
    base, lmp = data["variants"]
    for index in (0, 1, 3, 4):
        scores = [
            [score(run, lambda e, i=index: e["iou"][i]) for run in seeds_of(lab, method)] for method in ("base", "lmp")
        ]
        for variant, own in zip((base, lmp), scores, strict=True):
            expected = {"mean": statistics.mean(own), "std": statistics.stdev(own)}
            assert variant["class_scores"][index] == near(expected)
        gains = [ours - theirs for theirs, ours in zip(*scores, strict=True)]
        mean, low, high = interval(gains)
        assert lmp["class_gains"][index] == near({"mean": mean, "low": low, "high": high, "pairs": 3})
    assert base["class_scores"][2] is None
    assert lmp["class_gains"][2] is None


def test_curves(lab, data):
    for variant in data["variants"]:
        runs = seeds_of(lab, variant["label"])
        steps = [10, 20, 30, 40, 50, 60]
        assert variant["miou"]["steps"] == variant["loss"]["steps"] == steps
        for at, step in enumerate(steps):
            miou = statistics.mean(lines(run, "val")[step]["miou"] for run in runs)
            loss = statistics.mean(lines(run, "train")[step]["loss"] for run in runs)
            assert variant["miou"]["values"][at] == near(miou)
            assert variant["loss"]["values"][at] == pytest.approx(loss, rel=1e-4)


def test_the_step_that_reaches_the_baseline(lab, data):
    curves = {
        method: {
            step: statistics.mean(lines(run, "val")[step]["miou"] for run in seeds_of(lab, method))
            for step in range(10, 61, 10)
        }
        for method in ("base", "lmp")
    }
    assert data["level"] == near(curves["base"][60])
    for variant in data["variants"]:
        curve = curves[variant["label"]]
        assert variant["first_step"] == min(step for step, value in curve.items() if value >= data["level"])


def test_series_of_a_run(lab, data):
    (run,) = [run for run in data["runs"] if run["name"] == "lmp-s1"]
    written = lines(lab / "lmp-s1", "train")
    assert (run["variant"], run["seed"], run["mix"], run["commit"]) == (1, 1, 0.5, "c0ffee")
    assert run["machine"] == "Linux x86_64, CPU"
    assert run["miou"]["values"] == [line["miou"] for line in lines(lab / "lmp-s1", "val").values()]
    for key in ("loss", "alpha", "saturated"):
        assert run["train"][key] == pytest.approx([line[key] for line in written.values()], rel=1e-4)
    assert run["train"]["steps"] == run["classes"]["steps"] == list(written)
    for key in ("iou", "probabilities", "mass"):
        for index, series in enumerate(run["classes"][key]):
            assert series == pytest.approx([line[key][index] for line in written.values()], rel=1e-4)


def test_recall_per_look(lab, data):
    assert data["looks"] == ["car/day", "car/night"]
    for variant in data["variants"]:
        for look in data["looks"]:
            found = [
                lines(run, "val")[step]["recall_per_look"][look]
                for run in seeds_of(lab, variant["label"])
                for step in STEPS
            ]
            assert variant["recall"][look] == near(statistics.mean(found))


def test_ones_own_data_are_called_like_their_folder(tmp_path):
    for method in ("base", "lmp"):
        config = lab_config(method, data=DataConfig("folder", "/data/peanut"))
        write_lab_run(tmp_path / "runs" / method, config, previews=False)
    data = report(tmp_path / "runs").data
    assert (data["title"], data["dataset"]) == ("peanut: base and lmp", "peanut/val")
    table = tables(tmp_path / "runs", "methods")["methods"]
    assert table.notes[0].startswith("peanut, validation in training, ")


def test_a_title_of_three(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False)
    write_lab_run(root / "focal", lab_config("focal"), previews=False)
    assert report(root).data["title"] == "streets: base, focal and lmp"


def test_what_was_compared(data):
    assert data["title"] == "streets: base and lmp"
    assert (data["dataset"], data["recipes"], data["source"], data["steps"]) == (
        "streets/val",
        ["made-up"],
        "validation",
        list(STEPS),
    )
    differences = {entry["setting"]: entry["values"] for entry in data["differences"]}
    assert differences == {
        "method": ["base", "lmp"],
        "loss.name": ["cross_entropy", "lmp"],
        "sampling.mix": ["0", "0.5"],
    }


def test_one_seed_has_a_spread_over_checkpoints_and_no_interval(tmp_path):
    data = report(write_lab(tmp_path / "runs", seeds=(0,))).data
    _, lmp = data["variants"]
    mious = [lines(tmp_path / "runs" / "lmp-s0", "val")[step]["miou"] for step in STEPS]
    assert lmp["score"] == near({"mean": statistics.mean(mious), "std": statistics.stdev(mious)})
    assert lmp["spread_over"] == "checkpoints"
    assert lmp["gain"]["mean"] == near(score(tmp_path / "runs" / "lmp-s0") - score(tmp_path / "runs" / "base-s0"))
    assert (lmp["gain"]["low"], lmp["gain"]["high"], lmp["gain"]["pairs"]) == (None, None, 1)


def test_one_run_at_one_checkpoint(tmp_path):
    write_lab_run(tmp_path / "runs" / "only", lab_config("lmp"), previews=False)
    data = report(tmp_path / "runs", steps=(60,)).data
    (only,) = data["variants"]
    assert only["baseline"]
    assert only["score"] == {"mean": lines(tmp_path / "runs" / "only", "val")[60]["miou"], "std": None}
    assert only["spread_over"] is None
    assert data["differences"] == []
    assert data["previews"]["runs"] == data["previews"]["pictures"] == []


def test_scores_of_an_evaluation(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), previews=False)
    for run in root.iterdir():
        bonus = 0.1 if run.name.startswith("lmp") else 0.0
        entry = {"step": 60, "miou": 0.5 + bonus, "iou": [0.5 + bonus] * 5, "pixels": [5, 4, 3, 2, 1]}
        (run / "evaluation-test-none.json").write_text(json.dumps({"checkpoints": [entry]}))
    data = report(root, source="test").data
    assert (data["source"], data["steps"], data["looks"]) == ("test", [60], [])
    assert [info["pixels"] for info in data["classes"]] == [5, 4, 3, 2, 1]
    assert data["variants"][1]["gain"]["mean"] == near(0.1)


def test_long_runs_are_thinned_out(tmp_path):
    write_lab_run(tmp_path / "runs" / "long", lab_config("lmp"), previews=False)
    metrics = tmp_path / "runs" / "long" / "metrics.jsonl"
    first, validation = (json.loads(line) for line in metrics.read_text().splitlines()[:2])
    first["iou"][0] = None
    many = [{**first, "step": 10 * (1 + i), "loss": 1 / (1 + i)} for i in range(16_500)]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in [*many, {**validation, "step": 60}]))
    run = report(tmp_path / "runs").data["runs"][0]
    for series, most in ((run["train"], 1000), (run["classes"], 150)):
        steps = series["steps"]
        assert most / 2 < len(steps) <= most
        assert steps[-1] == 165_000
        assert len({late - early for early, late in pairwise(steps)}) == 1
    for step, loss in zip(run["train"]["steps"], run["train"]["loss"], strict=True):
        assert loss == pytest.approx(10 / step, rel=1e-4)
    assert set(run["classes"]["iou"][0]) == {None}


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 19, 20, 21, 999])
def test_thinning(length):
    kept = thinned(range(length), 10)
    assert len(kept) <= 10
    assert kept[-1:] == list(range(length))[-1:]
    assert length > 10 or kept == list(range(length))


def test_evenly():
    assert evenly(range(5), 16) == [0, 1, 2, 3, 4]
    kept = evenly(range(331), 16)
    assert (kept[0], kept[-1], len(kept)) == (0, 330, 16)
    assert {late - early for early, late in pairwise(kept)} == {22}


NAMES = ("<script>alert(1)</script>", "</script><b>x", "<!--<script>", "{{script}} &amp; \u2028\u2029", "a\"b'c")


def test_names_stay_text(tmp_path):
    classes = tuple(ClassInfo(name, info.color) for name, info in zip(NAMES, CLASSES, strict=True))
    config = lab_config("base", data=DataConfig("folder", "/data/<img src=x onerror=alert(1)>"))
    folder = write_lab_run(tmp_path / "runs" / "<b>x", config, classes=classes)
    (folder.previews / "names.json").write_text(json.dumps(["<script>alert(2)</script>", "scene 1"]))
    parts = report(tmp_path / "runs")
    assert [tag for tag, _ in parts.elements].count("script") == 3
    assert not {"b", "img"} & {tag for tag, _ in parts.elements}
    assert tuple(info["name"] for info in parts.data["classes"]) == NAMES
    assert parts.data["runs"][0]["name"] == "<b>x"
    assert parts.data["previews"]["runs"][0]["images"][0]["name"] == "<script>alert(2)</script>"
    assert parts.texts["title"] == parts.texts["h1"] == ["<img src=x onerror=alert(1)>: base"]


def test_json_in_a_script():
    data = {"<>&": "\u2028\u2029é\udcff"}  # the last is a byte of a file's name that is not UTF-8
    text = escaped_json(data)
    assert text == '{"\\u003c\\u003e\\u0026":"\\u2028\\u2029é\\udcff"}'
    assert text.encode()
    assert json.loads(text) == data


def test_nothing_is_loaded_and_no_other_script_runs(lab):
    parts = report(lab)
    for tag, attributes in parts.elements:
        assert "src" not in attributes, tag
        assert re.match("#|data:,$", attributes.get("href", "#")), attributes
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import", parts.texts["style"][0])
    (policy,) = [each["content"] for tag, each in parts.elements if each.get("http-equiv") == "Content-Security-Policy"]
    rules = {words[0]: words[1:] for words in (rule.split() for rule in policy.split(";"))}
    assert rules["default-src"] == ["'none'"]
    assert rules["img-src"] == ["data:", "blob:"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in parts.texts["script"][1:]]
    assert rules["script-src"] == [f"'sha256-{digest}'" for digest in digests]
    assert "connect-src" not in rules


def test_twenty_runs_stay_under_two_megabytes(tmp_path):
    """Pictures of noise, which no format makes small, and 500 logged steps: both must give way."""
    random = np.random.default_rng(0)
    for place in range(20):
        config = lab_config("lmp" if place else "base", p=1 + place / 10)
        folder = write_lab_run(tmp_path / "runs" / f"{place:02}", config)
        for path in folder.previews.glob("*-step-*.png"):
            with Image.open(path) as image:
                noisy = Image.fromarray(random.integers(0, 5, (160, 160)).astype(np.uint8))
                if image.mode == "P":
                    noisy.putpalette(image.getpalette())
            noisy.save(path, compress_level=1)
        lines = folder.metrics.read_text().splitlines()
        more = [json.dumps({**json.loads(lines[0]), "step": 61 + step}) for step in range(500)]
        folder.metrics.write_text("\n".join([*lines, *more, ""]))
    path = write_report(statistics_of(tmp_path / "runs"), tmp_path / "report.html")
    assert 1_500_000 < path.stat().st_size < 2_000_000
    data = Parts(path.read_text(encoding="utf-8")).data
    assert len(data["runs"]) == 20
    assert min(len(run["train"]["steps"]) for run in data["runs"]) > 50
    assert len(data["previews"]["runs"]) >= 2
    assert all(image["frames"][-1]["step"] == 60 for run in data["previews"]["runs"] for image in run["images"])


def test_plotly_is_the_published_file():
    folder = Path(losspool.lab.report.__file__).parent / "plotly"
    digest, name = (folder / "SHA256SUMS").read_text().split()
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "Plotly" in (folder / "LICENSE").read_text()


def test_the_same_runs_give_the_same_bytes(lab, tmp_path):
    statistics = statistics_of(lab)
    one, other = (write_report(statistics, tmp_path / name).read_bytes() for name in ("one.html", "new/other.html"))
    assert one == other
    assert b"report.html" not in one
    assert str(lab.parent).encode() not in one


def test_a_failed_write_leaves_the_old_report(lab, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def torn(self, text, **_):
        self.write_bytes(text[:100].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", torn)
    with pytest.raises(UserError, match=r"report\.html: cannot be written \(No space left on device\)"):
        write_report(statistics_of(lab), path)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_bytes() == b"old"
