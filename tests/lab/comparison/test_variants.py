"""Runs that differ in their seed alone are one variant; labels tell variants apart and no more."""

import json

import pytest

from lab_runs import CLASSES, lab_config, write_lab, write_lab_run
from losspool.lab.comparison import VALIDATION, compare, read_run
from losspool.lab.comparison.runs import find_runs
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import DataConfig, LossConfig, ModelConfig


def write(root, *runs):
    for number, (method, changes) in enumerate(runs):
        write_lab_run(root / f"run{number}", lab_config(method, **changes), previews=False)
    return find_runs([root])


def labels(root, *runs):
    return [variant.label for variant in compare(write(root, *runs)).variants]


def test_methods_alone(tmp_path):
    runs = [("lmp", {"seed": 1}), ("base", {}), ("lmp", {"seed": 0})]
    comparison = compare(write(tmp_path, *runs))
    assert [variant.label for variant in comparison.variants] == ["base", "lmp"]
    assert [run.seed for run in comparison.variants[1].runs] == [0, 1]
    assert comparison.baseline.label == "base"
    assert comparison.steps == (40, 50, 60)
    # What the method itself sets is not part of the label, but it is a difference.
    assert set(comparison.differences()) == {"method", "loss.name", "sampling.mix"}


def test_settings_enter_the_label_only_where_they_differ_within_a_method(tmp_path):
    runs = [("base", {"lr": 0.1}), ("lmp", {"p": 1.7}), ("lmp", {"p": 1.3}), ("lmp", {"p": 1.3, "lr": 0.02})]
    assert labels(tmp_path, *runs) == [
        "base",
        "lmp, p = 1.3, lr = 0.01",
        "lmp, p = 1.3, lr = 0.02",
        "lmp, p = 1.7, lr = 0.01",
    ]


def test_a_schedule_is_labelled_in_words(tmp_path):
    runs = [("lmp", {"m": "25%"}), ("lmp", {"m": {"from": "100%", "to": "25%", "steps": 400}})]
    assert labels(tmp_path, *runs) == ["lmp, m = 25%", "lmp, m = 100% to 25% in 400 steps"]


def test_terms_are_labelled_as_in_a_recipe(tmp_path):
    runs = [("lmp", {}), ("lmp", {"loss": LossConfig("lmp", terms={"lmp": 1.0, "dice": 0.5})})]
    assert labels(tmp_path, *runs) == ["lmp, terms = {}", "lmp, terms = {lmp: 1, dice: 0.5}"]


def test_other_weights_and_another_folder_of_data_are_other_variants(tmp_path):
    for number, weights in enumerate((None, "/a/x.pth", "/b/x.pth", "/a/y.pth")):
        config = lab_config(seed=number, model=ModelConfig(weights=weights))
        write_lab_run(tmp_path / "weights" / str(number), config, previews=False)
    found = {variant.label: len(variant.runs) for variant in compare(find_runs([tmp_path / "weights"])).variants}
    assert found == {"base, weights = None": 1, "base, weights = x.pth": 2, "base, weights = y.pth": 1}
    for number, (name, root) in enumerate((("folder", "/a"), ("folder", "/b"), ("camvid", "/a"), ("camvid", "/b"))):
        config = lab_config(seed=number, data=DataConfig(name, root))
        write_lab_run(tmp_path / name / str(number), config, previews=False)
    assert len(compare(find_runs([tmp_path / "folder"])).variants) == 2
    assert len(compare(find_runs([tmp_path / "camvid"])).variants) == 1


def test_folders_called_like_a_number_of_pixels(tmp_path):
    for number, root in enumerate(("/512px", "/256px", "/50%")):
        config = lab_config(data=DataConfig("folder", root))
        write_lab_run(tmp_path / str(number), config, previews=False)
    found = [variant.config.data.root for variant in compare(find_runs([tmp_path])).variants]
    assert found == ["/256px", "/50%", "/512px"]


@pytest.mark.parametrize(
    "entry", [{"name": "a", "color": [300, 0, 0]}, {"name": "a", "color": [float("inf"), 0, 0]}, {"name": "a"}, 7, None]
)
def test_a_class_that_is_none(tmp_path, entry):
    folder = write_lab_run(tmp_path / "run", lab_config(), previews=False)
    description = json.loads(folder.description.read_text())
    folder.description.write_text(json.dumps({**description, "classes": [entry]}))
    with pytest.raises(UserError, match=r"run.json: .* is not a (class|colour)"):
        read_run(folder.path)


def test_without_keep_steps_the_last_common_validation_counts(tmp_path):
    config = lab_config()
    train = type(config.train)(steps=60, validate_every=10)
    write_lab_run(tmp_path / "a", lab_config(train=train), previews=False)
    assert compare(find_runs([tmp_path])).steps == (60,)


def test_the_first_is_the_baseline_where_there_is_no_base(tmp_path):
    comparison = compare(write(tmp_path, ("lmp", {}), ("focal", {})))
    assert comparison.baseline.label == "focal"  # methods have an order
    assert compare(find_runs([tmp_path]), baseline="lmp").baseline.label == "lmp"


def test_the_same_run_twice(tmp_path):
    with pytest.raises(UserError, match=r"run0 and .*run1 are the same run twice \(seed 0\)"):
        compare(write(tmp_path, ("lmp", {}), ("lmp", {})))


def test_other_classes(tmp_path):
    write_lab_run(tmp_path / "a", lab_config("base"), previews=False)
    write_lab_run(tmp_path / "b", lab_config("lmp"), previews=False, classes=CLASSES[:3])
    with pytest.raises(UserError, match="different classes"):
        compare(find_runs([tmp_path]))


def test_folders_of_folders_and_runs_that_have_not_begun(tmp_path, capsys):
    root = write_lab(tmp_path / "deep" / "runs", seeds=(0,), previews=False)
    (root / "lmp-s0" / "metrics.jsonl").write_text("")
    assert [run.name for run in find_runs([tmp_path, root / "base-s0"])] == ["base-s0"]  # once, though named twice
    (root / "base-s0" / "metrics.jsonl").unlink()
    assert find_runs([tmp_path]) == []
    assert "has no validation yet" in capsys.readouterr().err
    with pytest.raises(UserError, match="no run to compare"):
        compare([])


def test_a_run_that_failed_has_no_score_and_is_named(tmp_path):
    write(tmp_path, ("base", {}), ("lmp", {"lr": 0.1}), ("lmp", {"lr": 0.2}), ("lmp", {"lr": 0.3}))
    metrics = tmp_path / "run2/metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:4]))  # it came to step 20
    change_json(tmp_path / "run2/run.json", status="failed", step=27)
    (tmp_path / "run3/metrics.jsonl").unlink()
    description = json.loads((tmp_path / "run3/run.json").read_text())
    del description["step"]
    (tmp_path / "run3/run.json").write_text(json.dumps({**description, "status": "failed"}))
    comparison = compare(find_runs([tmp_path]))
    assert [variant.label for variant in comparison.variants] == ["base", "lmp"]  # as if there were no other
    assert comparison.failures == (
        "lmp, lr = 0.2 (seed 0, after step 27)",
        "lmp, lr = 0.3 (seed 0, before its first step)",
    )
    assert comparison.steps == (40, 50, 60)  # the others' scores are what they were
    assert compare(find_runs([tmp_path]), source=VALIDATION, steps=[60]).steps == (60,)
    with pytest.raises(UserError, match=r"every run failed: lmp, lr = 0.2 .*; lmp, lr = 0.3"):
        compare(find_runs([tmp_path / "run2", tmp_path / "run3"]))
    with pytest.raises(UserError, match=r"every run of the baseline 'lmp, lr = 0.2' failed"):
        compare(find_runs([tmp_path]), baseline="lmp, lr = 0.2")


def test_a_failed_run_that_another_makes_up_for_is_not_reported(tmp_path):
    runs = write(tmp_path, ("lmp", {}), ("lmp", {}), ("lmp", {"seed": 1}), ("lmp", {"seed": 1}))
    for name in ("run1", "run2", "run3"):
        change_json(tmp_path / name / "run.json", status="failed")
    assert len(runs) == 4
    assert compare(find_runs([tmp_path])).failures == ("lmp (seed 1, after step 60)",)


def change_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: (run / "config.yaml").unlink(), "not the folder of a run"),
        (lambda run: (run / "run.json").unlink(), "run.json: the file does not exist"),
        (lambda run: (run / "run.json").write_text("{"), "run.json: cannot be read"),
        (lambda run: (run / "run.json").write_text("[]"), "run.json: must hold a JSON object"),
        (lambda run: change_json(run / "run.json", classes=None), "run.json: has no classes"),
        (lambda run: change_json(run / "run.json", classes=[1]), "1 is not a class"),
        (lambda run: change_json(run / "run.json", classes=[]), "the scores of step 10 do not fit the run's classes"),
        (lambda run: (run / "metrics.jsonl").write_text("x\ny\n"), "metrics.jsonl: line 1 is not JSON"),
    ],
)
def test_broken_runs(spoil, words, tmp_path):
    write_lab_run(tmp_path / "run", lab_config(), previews=False)
    spoil(tmp_path / "run")
    with pytest.raises(UserError, match=words):
        read_run(tmp_path / "run")
