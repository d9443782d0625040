"""What a run is called, what may change when it goes on, and what a start that failed leaves behind."""

import json
import re
from dataclasses import replace

import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.config import RECIPES, Config, DataConfig, TrainConfig, load_config
from losspool.segmentation.runs import RunFolder, never_stepped, run_name
from losspool.segmentation.training import Trainer
from losspool.segmentation.training.optimization import rate_factor
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe
from small_data import save
from trained_runs import assert_mistake


@pytest.mark.parametrize(
    ("recipe", "data", "name"),
    [
        ("camvid", DataConfig("folder", "/data/peanut/"), "peanut-lmp-0"),
        ("recipe", DataConfig("folder", "/data/peanut"), "peanut-lmp-0"),
        ("mine", DataConfig("folder", "/data/peanut"), "peanut-mine-lmp-0"),
        ("mine", DataConfig("camvid", "/data/CamVid"), "camvid-mine-lmp-0"),
        ("camvid", DataConfig("camvid", "/data/CamVid"), "camvid-lmp-0"),
        ("camvid-strong", DataConfig("camvid", "/data/CamVid"), "camvid-strong-lmp-0"),
        ("camvid-strong", DataConfig("folder", "/data/peanut"), "peanut-lmp-0"),
        ("peanut", DataConfig("folder", "/data/weeds"), "weeds-lmp-0"),
        ("streets", DataConfig("streets"), "streets-lmp-0"),
        ("run", DataConfig("mypackage.fields", "/data"), "fields-run-lmp-0"),
        ("camvid", DataConfig("folder", "/data/.my plants (2)"), "my-plants--2--lmp-0"),
        ("camvid", DataConfig("folder", "/"), "folder-lmp-0"),
    ],
)
def test_a_run_is_named_after_its_data_and_recipe(recipe, data, name):
    assert run_name(Config(recipe, data=data)) == name


def test_recipes_of_the_package_give_runs_of_different_names():
    configs = {name: load_config(name) for name in RECIPES.files}
    assert len({run_name(config) for config in configs.values()}) == len(configs) > 6


@pytest.mark.parametrize("name", RECIPES.files)
def test_a_recipes_header_names_the_run_that_its_command_writes(name):
    header = RECIPES.files[name].read_text()
    commands = re.findall(r"^#   losspool train (\S+)(.*)", header, re.MULTILINE)
    written = {f"runs/{run_name(load_config(recipe, words.split()))}" for recipe, words in commands}
    assert set(re.findall(r"losspool evaluate (\S+)", header)) <= written


def test_the_default_folder(tmp_path, command, monkeypatch):
    """And the one that version 0.1 would have taken, if it is there and the run is resumed."""
    monkeypatch.chdir(tmp_path)
    recipe = write_recipe(tmp_path, steps=2)
    assert command("train", recipe)[0] == 0
    assert (tmp_path / "runs/data-tiny-lmp-0/metrics.jsonl").exists()
    (tmp_path / "runs/data-tiny-lmp-0").rename(tmp_path / "runs/tiny-lmp-0")
    code, _, error = command("train", recipe, "--resume")
    assert (code, "finished: runs/tiny-lmp-0" in error) == (0, True)
    assert not (tmp_path / "runs/data-tiny-lmp-0").exists()


def test_a_raised_number_of_steps_goes_on_with_the_longer_schedule(tmp_path, capsys):
    recipe, out = write_recipe(tmp_path, log_every=1), tmp_path / "run"
    train(recipe, out)
    short = {line["step"]: line for line in metrics(out) if line["split"] == "train"}
    capsys.readouterr()
    assert train(recipe, out, "train.steps=16", resume=True).state.step == 16
    config = load_config(recipe).train
    rate = config.lr * rate_factor(replace(config, steps=16), 12)
    said = capsys.readouterr().err
    assert "train.steps is raised from 12 to 16" in said
    assert f"schedule of 16 steps, at {rate:.3g} instead of 0" in said
    lines = {line["step"]: line for line in metrics(out) if line["split"] == "train"}
    assert {step: lines[step] for step in short} == short
    whole = train(recipe, tmp_path / "whole", "train.steps=16")
    longer = {line["step"]: line["lr"] for line in metrics(whole.folder.path) if line["split"] == "train"}
    assert {step: lines[step]["lr"] for step in range(13, 17)} == {step: longer[step] for step in range(13, 17)}
    assert json.loads((out / "run.json").read_text())["raised"] == [[12, 12, 16]]
    assert load_config(out / "config.yaml").train.steps == 16
    capsys.readouterr()
    train(recipe, out, "train.steps=18", resume=True)
    assert json.loads((out / "run.json").read_text())["raised"] == [[12, 12, 16], [16, 16, 18]]
    with pytest.raises(UserError, match=r"its train\.steps is 18, the command says 12; it may be raised, but not low"):
        train(recipe, out, resume=True)


def test_what_changes_no_number_may_change(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop)
        with pytest.raises(RuntimeError, match="stop"):
            train(recipe, tmp_path / "parts")
    options = ("train.log_every=3", "train.checkpoint_every=2", "train.previews=3", "data.workers=1")
    with pytest.raises(UserError, match=r"its train\.batch is 2, the command says 3"):
        Trainer(load_config(recipe, [*options, "train.batch=3"]), tmp_path / "parts", resume=True)
    train(recipe, tmp_path / "parts", *options, resume=True)
    for part in ("model", "optimizer", "running", "best"):
        assert_equal(checkpoint(tmp_path / "parts", 12)[part], checkpoint(tmp_path / "whole", 12)[part])
    assert [line["step"] for line in metrics(tmp_path / "parts") if line["split"] == "train"] == [4, 9, 12]


def stop():
    raise RuntimeError("stop")


def test_more_previews_keep_the_images_and_their_numbers(tmp_path, monkeypatch):
    recipe, out = write_recipe(tmp_path, validate_every=3), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop)
        with pytest.raises(RuntimeError, match="stop"):
            train(recipe, out, "train.previews=2")
    names = json.loads((out / "previews/names.json").read_text())
    assert names == ["000", "002"]
    before = {path.name: path.read_bytes() for path in (out / "previews").glob("*-step-0000003*.png")}
    train(recipe, out, "train.previews=3", resume=True)
    assert json.loads((out / "previews/names.json").read_text()) == ["000", "002", "001"]
    for name, content in before.items():
        assert (out / "previews" / name).read_bytes() == content
    assert sorted(path.name for path in (out / "previews").glob("*-step-0000012.png")) == [
        f"{number:02d}-step-0000012.png" for number in range(3)
    ]
    assert (out / "previews/02-image.png").read_bytes() != (out / "previews/01-image.png").read_bytes()


def test_a_start_that_failed_before_its_first_step_blocks_nothing(tmp_path):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    broken = tmp_path / "data/images/train"
    kept = {path: path.read_bytes() for path in broken.iterdir()}
    for path in kept:
        path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="not an image"):
        train(recipe, out)
    assert (out / "config.yaml").exists()
    assert never_stepped(RunFolder(out))
    for path, content in kept.items():
        path.write_bytes(content)
    train(recipe, out, "train.lr=0.01")  # without --resume, and with another setting
    assert load_config(out / "config.yaml").train.lr == 0.01
    train(recipe, tmp_path / "fresh", "train.lr=0.01")
    assert metrics(out) == metrics(tmp_path / "fresh")
    assert_equal(checkpoint(out, 12), checkpoint(tmp_path / "fresh", 12))
    with pytest.raises(UserError, match="the run exists; pass --resume"):
        train(recipe, out)


def test_a_run_with_a_step_is_not_begun_again(tmp_path, monkeypatch):
    """Neither one that saved nothing yet, nor a config.yaml that no training wrote."""
    recipe, out = write_recipe(tmp_path, log_every=1), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 3, stop)
        with pytest.raises(RuntimeError, match="stop"):
            train(recipe, out)
    assert not never_stepped(RunFolder(out))
    (out / "run.json").write_text('{"status": "running"}')  # as after a kill
    assert not never_stepped(RunFolder(out))
    (out / "metrics.jsonl").rename(tmp_path / "metrics.jsonl")
    assert never_stepped(RunFolder(out))
    (tmp_path / "metrics.jsonl").rename(out / "metrics.jsonl")
    with pytest.raises(UserError, match="the run exists"):
        train(recipe, out)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("method: base\n")
    with pytest.raises(UserError, match="the run exists"):
        train(recipe, other)


def test_training_without_validation(tmp_path, command):
    recipe, out = write_recipe(tmp_path, steps=6), tmp_path / "run"
    assert train(recipe, out, "data.val=null").state.step == 6
    assert {line["split"] for line in metrics(out)} == {"train"}
    assert not (out / "previews").exists()
    assert json.loads((out / "run.json").read_text())["best"] is None
    assert_equal(checkpoint(out, 6)["model"], checkpoint_of_validated(recipe, tmp_path)["model"])
    trust = ("--trust", "tiny_model.build")
    assert_mistake(command("evaluate", out, *trust), "the run has no validation split (data.val is null); pass --split")
    assert command("evaluate", out, "--split", "train", *trust)[0] == 0
    names = ("predict", out, "--name", "000", "--out", tmp_path / "p", *trust)
    assert_mistake(command(*names), "data.val is null")


def checkpoint_of_validated(recipe, tmp_path):
    train(recipe, tmp_path / "validated")
    return checkpoint(tmp_path / "validated", 6)


def test_data_without_a_validation_split_say_how_to_go_on(tmp_path):
    recipe = write_recipe(tmp_path)
    with pytest.raises(UserError, match=r"no such folder.*; data\.val=null trains without validation"):
        train(recipe, tmp_path / "run", "data.val=nowhere")


def test_the_rates_of_a_schedule_end_at_zero():
    for schedule in ("poly", "cosine"):
        config = TrainConfig(steps=10, schedule=schedule)
        assert rate_factor(config, 0) == 1
        assert rate_factor(config, 10) == pytest.approx(0, abs=1e-12)


def test_an_image_that_breaks_later_stops_with_its_steps(tmp_path):
    """A broken validation image is not taken for a missing split."""
    recipe = write_recipe(tmp_path)
    save(tmp_path / "data/labels/val/000.png", [[1, 1], [1, 1]])
    with pytest.raises(UserError) as caught:
        train(recipe, tmp_path / "run")
    assert "data.val" not in str(caught.value)


def test_an_empty_config_is_another_run(tmp_path):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    train(recipe, out)
    (out / "config.yaml").write_text("")
    with pytest.raises(UserError, match="its recipe is 'config', the command says 'tiny'"):
        train(recipe, out, resume=True)
