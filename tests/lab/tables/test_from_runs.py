"""Every number of a table, recomputed from metrics.jsonl in plain Python."""

import csv
import io
import json
import re
import statistics as plain_statistics

import pytest

from lab_runs import CLASSES, PIXELS, lab_config, write_lab, write_lab_evaluation, write_lab_run
from lab_tables import rows, tables
from losspool.lab.tables.formats import format_table
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import DataConfig
from losspool.segmentation.data.kinds.cityscapes import CLASSES as CITYSCAPES
from losspool.segmentation.data.protocol import ClassInfo
from plain_bootstrap import LAB_BLOCKS, plain_intervals, plain_mean, plain_scores, stored_counts
from plain_metrics import STEPS, interval, lines, score


def test_methods(root):
    found = rows(tables(root, "methods")["methods"])
    base = [100 * score(root / f"base-s{seed}") for seed in (0, 1, 2)]
    lmp = [100 * score(root / f"lmp-s{seed}") for seed in (0, 1, 2)]
    for label, scores in (("base", base), ("lmp", lmp)):
        assert found[label]["seeds"] == "3"
        assert float(found[label]["mean IoU"]) == pytest.approx(sum(scores) / 3)
        assert float(found[label]["Std.Dev."]) == pytest.approx(plain_statistics.stdev(scores))
    mean, low, high = interval([ours - theirs for ours, theirs in zip(lmp, base, strict=True)])
    assert float(found["lmp"]["Δ to base"]) == pytest.approx(mean)
    assert float(found["lmp"]["95 % interval, low"]) == pytest.approx(low)
    assert float(found["lmp"]["95 % interval, high"]) == pytest.approx(high)
    assert found["base"]["Δ to base"] == ""


def test_intervals_over_images(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(50, 60), previews=False)
    made = tables(root, "methods", "classes", source="test")
    ours, theirs = ([stored_counts(root / f"{method}-s{seed}") for seed in (0, 1)] for method in ("lmp", "base"))
    miou, *per_class = ([100 * end for end in ends] for ends in plain_intervals(ours, theirs, LAB_BLOCKS))
    found = rows(made["methods"])
    assert [float(found["lmp"][f"95 % interval over images, {end}"]) for end in ("low", "high")] == pytest.approx(miou)
    assert found["base"]["95 % interval over images, low"] == ""
    gains = [
        100 * (plain_mean([plain_scores(each, range(70))[1] for each in one]) - plain_mean(other))
        for one, other in zip(ours, [[plain_scores(e, range(70))[1] for e in run] for run in theirs], strict=True)
    ]
    mean, low, high = interval(gains)
    assert float(found["lmp"]["Δ to base"]) == pytest.approx(mean)
    assert float(found["lmp"]["95 % interval over seeds, low"]) == pytest.approx(low)
    assert float(found["lmp"]["95 % interval over seeds, high"]) == pytest.approx(high)
    classes = rows(made["classes"])
    for info, ends in zip((*(info.name for info in CLASSES), "Mean"), (*per_class, miou), strict=True):
        names = [f"lmp Δ 95 % interval over images, {end}" for end in ("low", "high")]
        assert [float(classes[name][info]) for name in names] == pytest.approx(ends)
    for table in made.values():
        assert any("image interval covers resampling" in note for note in table.notes)


def test_a_method_that_was_not_counted_on_each_image_is_reported(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    config = lab_config("focal")
    path = write_lab_evaluation(write_lab_run(root / "focal", config, previews=False), config, level=0.4)
    stored = json.loads(path.read_text())
    del stored["checkpoints"][0]["per_image"]
    path.write_text(json.dumps(stored))
    table = tables(root, "methods", source="test")["methods"]
    assert table.notes[-1].endswith("with counts of the same images: focal.")
    assert rows(table)["focal"]["95 % interval over images, low"] == ""
    assert rows(table)["lmp"]["95 % interval over images, low"] != ""
    assert "no interval over seeds" in table.notes[0]


def test_classes(root):
    found = rows(tables(root, "classes")["classes"])
    for place, info in enumerate(CLASSES):
        scores = {
            method: [100 * score(root / f"{method}-s{seed}", lambda e, i=place: e["iou"][i]) for seed in (0, 1, 2)]
            for method in ("base", "lmp")
        }
        for method, values in scores.items():
            assert float(found[f"{method} Mean"][info.name]) == pytest.approx(sum(values) / 3)
            assert float(found[f"{method} Std.Dev."][info.name]) == pytest.approx(plain_statistics.stdev(values))
        mean, low, high = interval([b - a for a, b in zip(scores["base"], scores["lmp"], strict=True)])
        assert float(found["lmp Δ"][info.name]) == pytest.approx(mean)
        assert float(found["lmp Δ 95 % interval, low"][info.name]) == pytest.approx(low)
        assert float(found["lmp Δ 95 % interval, high"][info.name]) == pytest.approx(high)


def test_one_seed_spreads_over_checkpoints_as_in_the_paper(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(4,), previews=False)
    made = tables(root)
    scores = [100 * lines(root / "lmp-s4")[step]["miou"] for step in STEPS]
    found = rows(made["methods"])["lmp"]
    assert float(found["Std.Dev."]) == pytest.approx(plain_statistics.stdev(scores))
    assert not any("interval" in column for column in found)
    assert "no interval" in made["methods"].notes[0]


def test_sensitivity(tmp_path):
    for seed in (0, 1):
        write_lab_run(tmp_path / f"base_plus-s{seed}", lab_config("base_plus", seed), level=0.3, previews=False)
        for p in (2.3, 1.0, 1.3):
            config = lab_config("lmp", seed, p=p)
            write_lab_run(tmp_path / f"lmp{p}-s{seed}", config, level=0.4 + p / 100, previews=False)
    table = tables(tmp_path, "sensitivity", baseline="base_plus")["sensitivity-p"]
    assert table.columns[:6] == ["p", "40", "50", "60", "Mean", "Std.Dev."]
    assert [row[0].text for row in table.rows] == ["1", "1.3", "2.3", "base_plus"]
    assert table.rules == {3}
    for label, name in (("1", "lmp1.0"), ("2.3", "lmp2.3"), ("base_plus", "base_plus")):
        found = rows(table)[label]
        columns = [
            100 * sum(lines(tmp_path / f"{name}-s{seed}")[step]["miou"] for seed in (0, 1)) / 2 for step in STEPS
        ]
        assert [float(found[str(step)]) for step in STEPS] == pytest.approx(columns)
        assert float(found["Mean"]) == pytest.approx(sum(columns) / 3)
        assert float(found["Std.Dev."]) == pytest.approx(plain_statistics.stdev(columns))
        seeds = [100 * score(tmp_path / f"{name}-s{seed}") for seed in (0, 1)]
        assert float(found["Std.Dev. over seeds"]) == pytest.approx(plain_statistics.stdev(seeds))
    gains = [100 * (score(tmp_path / f"lmp1.3-s{s}") - score(tmp_path / f"base_plus-s{s}")) for s in (0, 1)]
    mean, low, high = interval(gains)
    found = rows(table)["1.3"]
    assert float(found["Δ to base_plus"]) == pytest.approx(mean)
    assert float(found["95 % interval, low"]) == pytest.approx(low)
    assert float(found["95 % interval, high"]) == pytest.approx(high)


def test_the_papers_numbers_stand_beside_ours_where_the_data_are_the_same(tmp_path):
    cityscapes = DataConfig("cityscapes", "/data")
    write_lab_run(tmp_path / "base_plus", lab_config("base_plus", data=cityscapes), previews=False)
    for p in (1.3, 1.7, 5.0):
        write_lab_run(tmp_path / f"p{p}", lab_config("lmp", p=p, data=cityscapes), previews=False)
    table = tables(tmp_path, "sensitivity", baseline="base_plus")["sensitivity-p"]
    assert [(row[0].text, row[-1].text) for row in table.rows] == [
        ("1.3", "74.64 ± 0.10"),
        ("1.7", "74.57 ± 0.17"),
        ("5", "–"),
        ("base_plus", "73.13 ± 0.03"),
    ]
    for m, p in (("10%", 1.3), ("25%", 1.3), ("33%", 1.3)):
        write_lab_run(tmp_path / "m" / m[:-1], lab_config("lmp", m=m, p=p, data=cityscapes), previews=False)
    table = tables(tmp_path / "m", "sensitivity")["sensitivity-m"]
    assert [row[-1].text for row in table.rows] == ["74.09 ± 0.22", "74.64 ± 0.10", "–"]


@pytest.mark.parametrize(
    ("dataset", "printed"), [("cityscapes", "75.06 ± 0.09"), ("voc", "76.29 ± 0.02"), ("camvid", None)]
)
def test_the_papers_methods_and_classes(dataset, printed, tmp_path):
    for method in ("base", "base_plus", "lmp", "focal"):
        write_lab_run(tmp_path / method, lab_config(method, data=DataConfig(dataset, "/data")), previews=False)
    found = tables(tmp_path, "methods", "classes")
    if printed is None:
        assert "paper" not in found["methods"].columns
        return
    column = {row[0].text: row[-1].text for row in found["methods"].rows}
    assert column["lmp"] == printed
    assert column["focal"] == "–"


def test_the_papers_classes(tmp_path):
    for method in ("base_plus", "lmp"):
        config = lab_config(method, data=DataConfig("cityscapes", "/data"))
        write_lab_run(tmp_path / method, config, classes=CITYSCAPES, previews=False)
    found = rows(tables(tmp_path, "classes")["classes"])
    assert (found["lmp paper"]["rider"], found["lmp paper"]["Mean"]) == ("60.76", "75.06")
    assert found["base_plus paper"]["train"] == "67.77"


def test_shares_are_sorted_by_size(tmp_path):
    for m in ("50%", "5%", "25%"):
        write_lab_run(tmp_path / m[:-1], lab_config("lmp", m=m), previews=False)
    assert [row[0].text for row in tables(tmp_path, "sensitivity")["sensitivity-m"].rows] == ["5%", "25%", "50%"]


def test_a_class_that_does_not_occur(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), previews=False, absent=2)
    found = tables(root)
    assert rows(found["classes"])["base Mean"]["pole"] == ""
    gain = sum(score(root / f"lmp-s{s}") - score(root / f"base-s{s}") for s in (0, 1)) / 2
    assert float(rows(found["worst"])["4"]["lmp"]) == pytest.approx(100 * gain)  # the mean is over four


def test_scores_of_an_evaluation(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False)
    for method, level in (("base", 0.25), ("lmp", 0.5)):
        entry = {"step": 60, "miou": level, "iou": [level] * 5, "pixels": list(PIXELS)}
        path = root / f"{method}-s0" / "evaluation-test-none-60.json"
        path.write_text(json.dumps({"checkpoints": [entry]}))
    found = rows(tables(root, "methods", source="test")["methods"])
    assert found["lmp"]["mean IoU"] == "50.0"
    assert float(found["lmp"]["Δ to base"]) == 25
    with pytest.raises(UserError, match=r"no evaluation begins with 'val'; there are: test-none$"):
        tables(root, "methods", source="val")


def write_evaluation(folder, scores):
    entries = [
        {"step": step, "miou": score, "iou": [score] * 5, "pixels": list(PIXELS)} for step, score in scores.items()
    ]
    (folder / "evaluation-test-none-x.json").write_text(json.dumps({"checkpoints": entries}))


def test_an_evaluation_of_each_runs_best_checkpoint(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), previews=False)
    for name, step, level in (("base-s0", 20, 0.2), ("base-s1", 50, 0.3), ("lmp-s0", 60, 0.4), ("lmp-s1", 30, 0.6)):
        write_evaluation(root / name, {step: level})
    table = tables(root, "methods", source="test")["methods"]
    assert float(rows(table)["lmp"]["mean IoU"]) == pytest.approx(50)
    assert float(rows(table)["lmp"]["Δ to base"]) == pytest.approx(25)
    assert "evaluated of each run" in table.notes[0]
    assert len(tables(root, source="test")) > 3  # and nothing else stumbles


def test_evaluations_of_other_kinds_are_not_compared(tmp_path):
    """Scales of one method alone would be taken for its gain."""
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    path = root / "lmp-s1/evaluation-test-none-60.json"
    path.rename(path.with_name("evaluation-test-none-0.5x1.0-flip-60.json"))
    with pytest.raises(UserError, match=r"lmp-s1/evaluation-test-none-0.5x1.0-flip-60.json and .* in different ways"):
        tables(root, "methods", source="test")


def test_an_evaluation_by_its_whole_name(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    for path in root.glob("*/evaluation-test-none-60.json"):
        path.with_name("evaluation-test-none-600.json").write_text(path.read_text())
    assert tables(root, "methods", source="test-none-60")
    with pytest.raises(
        UserError, match="several evaluations begin with 'test'; there are: test-none-60, test-none-600"
    ):
        tables(root, "methods", source="test")


def test_the_names_that_a_message_lists_are_those_that_work(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    for path in root.glob("*/evaluation-test-none-60.json"):
        path.with_name("evaluation-test-none-flip-60.json").write_text(path.read_text())
    with pytest.raises(UserError, match=r"begin with 'test'; there are: test-none, test-none-flip$"):
        tables(root, "methods", source="test")
    assert tables(root, "methods", source="test-none")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"checkpoints": [{"miou": 0.5}]}, "without step"),
        ({"checkpoints": [{"step": 1, "miou": 0.5, "iou": [0.5]}]}, "do not fit the run's classes"),
        ({"checkpoints": [{"step": 1, "miou": 0.5, "iou": ["a"] * 5}]}, "do not fit the run's classes"),
        ({"checkpoints": []}, "no checkpoints"),
        ({}, "has no checkpoints"),
    ],
)
def test_damaged_evaluations(content, words, tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False)
    (root / "base-s0" / "evaluation-test-none-1.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=words):
        tables(root, "methods", source="test")


def test_unequal_seeds_are_reported(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), previews=False)
    write_lab_run(root / "lmp-s2", lab_config("lmp", 2), level=0.42, previews=False)
    table = tables(root, "methods")["methods"]
    assert rows(table)["lmp"]["seeds"] == "3"
    assert "Differences over the 2 seeds shared with base: lmp." in table.notes


def test_a_class_that_only_one_method_predicts(tmp_path):
    root = tmp_path / "runs"
    write_lab_run(root / "base", lab_config("base"), previews=False, absent=2)
    write_lab_run(root / "lmp", lab_config("lmp"), previews=False)
    assert any(
        note.startswith("pole is not labelled: lmp predicts it") for note in tables(root, "methods")["methods"].notes
    )


def test_other_checkpoints(root):
    found = rows(tables(root, "methods", steps=(10, 60))["methods"])["lmp"]
    scores = [lines(root / f"lmp-s{seed}")[step]["miou"] for seed in (0, 1, 2) for step in (10, 60)]
    assert float(found["mean IoU"]) == pytest.approx(100 * sum(scores) / 6)


@pytest.mark.parametrize("kind", ["md", "tex", "csv"])
def test_names_stay_text(tmp_path, kind):
    classes = (ClassInfo("<b>a|b_c&d\x1b[31m", (0, 0, 0)), *CLASSES[1:])
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False, classes=classes)
    written = format_table(tables(root, "classes")["classes"], kind)
    assert "\x1b" not in written or kind == "csv"
    if kind == "md":
        assert "<b>" not in written
        assert r"a\|b\_c&amp;d" in written
    elif kind == "tex":
        assert r"\textless{}b\textgreater{}a|b\_c\&d" in written
    else:
        assert next(csv.reader(io.StringIO(written)))[1] == classes[0].name


def test_markdown_marks_the_best_two(tmp_path):
    for p, level in ((1.0, 0.3), (1.3, 0.5), (1.7, 0.4)):
        write_lab_run(tmp_path / str(p), lab_config("lmp", p=p), level=level, previews=False)
    best, second = (
        re.search(pattern, format_table(tables(tmp_path, "sensitivity")["sensitivity-p"], "md"), re.MULTILINE)
        for pattern in (r"^\| ([\d.]+) .*\*\*", r"^\| ([\d.]+) .*<u>")
    )
    assert (best[1], second[1]) == ("1.3", "1.7")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--paper"),
        (["nowhere"], "nowhere: there is no such folder"),
        (["RUNS", "--kind", "table9"], "'table9'"),
        (["RUNS", "--kind", "sensitivity"], "variants that differ in exactly one setting"),
        (["RUNS", "--format", "docx"], "'docx'"),
        (["RUNS", "--baseline", "bass"], "unknown variant 'bass'; choose from 'base', 'lmp'"),
        (["RUNS", "--steps", "7"], "step 7 was not scored"),
        (["RUNS", "--steps", "a"], "'a'"),
        (["RUNS", "--scores", "test"], "no evaluation begins with 'test'; there are: none"),
    ],
)
def test_mistakes(arguments, words, root, command):
    code, output, error = command("lab", "table", *(str(root) if word == "RUNS" else word for word in arguments))
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert words in error


def test_the_command_writes_every_format(root, tmp_path, command):
    code, output, _ = command("lab", "table", root, "--kind", "methods", "--out", tmp_path / "out")
    assert code == 0
    assert output.split() == [str(tmp_path / "out" / f"methods.{kind}") for kind in ("md", "tex", "csv")]
    code, output, _ = command("lab", "table", root, "--kind", "methods", "--format", "csv")
    assert output == (tmp_path / "out" / "methods.csv").read_text()
    code, output, _ = command("lab", "table", root, columns=70)
    assert code == 0
    assert max(map(len, output.splitlines())) <= 70
