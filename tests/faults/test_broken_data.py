"""Files that break before or during training: an error that names them, or counted, reported and skipped."""

import errno
import itertools
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from losspool.segmentation.base.errors import BrokenFileError, UserError
from losspool.segmentation.base.process import Interrupted
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.config.schema import SamplingConfig
from losspool.segmentation.data.crops.augment import Augmentation, crop
from losspool.segmentation.data.crops.indexing import build_index, class_index
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.data.protocol import read_pair
from losspool.segmentation.prediction.scoring import score
from losspool.segmentation.training.loader import CropDataset, crop_loader
from losspool.segmentation.training.sampling import CropSampler, Draw, DrawStream
from losspool.segmentation.training.state import restored
from losspool.segmentation.training.trainer import Trainer
from real_runs import description, outcome
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe
from small_data import save, write_folder
from trained_runs import small_config, write_run

SKIP = "data.skip_broken=true"
DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "missing": lambda path: path.unlink(),
    "rubbish": lambda path: path.write_text("rubbish"),
}


def break_file(path, damage="truncated"):
    DAMAGES[damage](path)
    return path


def interrupt():
    raise Interrupted(signal.SIGTERM)


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("kind", "workers", "damage"),
    [
        ("images", 0, "truncated"),
        ("images", 2, "truncated"),
        ("images", 0, "missing"),
        ("labels", 0, "truncated"),
        ("labels", 2, "rubbish"),
    ],
)
def test_a_file_that_breaks_is_named_and_no_step_is_lost(recipe, data, tmp_path, monkeypatch, kind, workers, damage):
    """Mended, the run goes on and ends as if nothing had happened."""
    options = (f"data.workers={workers}", "train.accumulate=2", "train.batch=1")
    whole = {path: path.read_bytes() for path in (data / kind / "train").iterdir()}
    with monkeypatch.context() as patch:
        at_step(patch, 4, lambda: [break_file(path, damage) for path in whole])
        with pytest.raises(BrokenFileError) as caught:
            train(recipe, tmp_path / "run", *options)
    assert str(data / kind / "train") in str(caught.value)
    assert "\n" not in str(caught.value)
    about = description(tmp_path / "run")
    assert about["status"] == "failed"
    assert about["step"] >= 3
    assert checkpoint(tmp_path / "run", about["step"])["step"] == about["step"]
    for path, content in whole.items():
        path.write_bytes(content)
    train(recipe, tmp_path / "run", *options, resume=True)
    train(recipe, tmp_path / "undisturbed", *options)
    assert_equal(checkpoint(tmp_path / "run", 12), checkpoint(tmp_path / "undisturbed", 12))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "undisturbed")


def test_where_all_is_whole_the_option_changes_no_number(recipe, tmp_path):
    train(recipe, tmp_path / "plain")
    trainer = train(recipe, tmp_path / "skip", SKIP)
    plain, skip = (checkpoint(tmp_path / name, 12) for name in ("plain", "skip"))
    assert_equal(plain["model"], skip["model"])
    lines = metrics(tmp_path / "skip")
    assert [line.pop("skipped") for line in lines] == [0] * 5
    assert lines == metrics(tmp_path / "plain")
    assert trainer.state.skipped == 0


def broken_run(data):
    """An image, a label and an image of the validation split."""
    return [
        break_file(data / "images" / "train" / "001.png"),
        break_file(data / "labels" / "train" / "004.png", "missing"),
        break_file(data / "images" / "val" / "000.png", "rubbish"),
    ]


def test_broken_files_are_reported_once_and_counted(recipe, data, tmp_path, capsys):
    broken = broken_run(data)
    trainer = train(recipe, tmp_path / "run", SKIP, "method=lmp", "train.steps=24", "data.workers=2")
    output = capsys.readouterr().err
    lines = [line for line in output.splitlines() if line.startswith("skipped: ")]
    broken[1] = data / "images" / "train" / "004.png"  # without a label, it is the image that is named
    assert sorted(line.split(": ")[1] for line in lines) == sorted(map(str, broken))
    found = metrics(tmp_path / "run")
    counts = [line["skipped"] for line in found if line["split"] == "train"]
    stored = description(tmp_path / "run")
    assert stored["skipped"] == sum(counts) == trainer.state.skipped > 3
    assert [line["skipped"] for line in found if line["split"] == "val"] == [1] * 4
    assert (trainer.sampler._index.pixels[4] == 0).all()
    assert not list((tmp_path / "cache").glob("*"))  # it would hide the label from the next run


def test_counts_are_the_draws_of_broken_images(recipe, data, tmp_path):
    """Uniform draws visit each image once a round: two of six are broken, so a third of the crops is replaced."""
    broken_run(data)
    trainer = train(recipe, tmp_path / "run", SKIP, "method=base", "train.steps=12", "train.log_every=3")
    assert [line["skipped"] for line in metrics(tmp_path / "run") if line["split"] == "train"] == [2] * 4
    assert trainer.state.skipped == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_neither_workers_nor_a_resume_change_a_skipping_run(recipe, data, tmp_path, monkeypatch, workers):
    broken_run(data)
    train(recipe, tmp_path / "whole", SKIP)
    with monkeypatch.context() as patch:
        at_step(patch, 6, interrupt)
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "parts", SKIP, f"data.workers={workers}")
    train(recipe, tmp_path / "parts", SKIP, f"data.workers={workers}", resume=True)
    ours, theirs = (checkpoint(tmp_path / name, 12) for name in ("parts", "whole"))
    for each in (ours, theirs):
        each.pop("config")
    assert_equal(ours, theirs)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert theirs["skipped"] > 0


def test_ranks_skip_what_one_process_does(recipe, data, tmp_path, launch):
    """With the same crops in the place of the broken ones. Each file is reported once, on whichever rank it was met."""
    broken_run(data)
    # Uniform draws, and a network whose loss depends on the crops of the step alone.
    options = (SKIP, "method=lmp", "sampling.mix=0.0", "model.name=tiny_model.build_plain", "train.log_every=1")
    train(recipe, tmp_path / "one", *options, "train.batch=2")
    arguments = ("train", recipe, *options, "train.batch=1", "--out", tmp_path / "two")
    code, output = outcome(launch(*arguments, ranks=2))
    assert code == 0, output
    one, two = (metrics(tmp_path / name) for name in ("one", "two"))
    for line, other in zip(one, two, strict=True):
        for key in ("step", "split", "skipped"):
            assert line[key] == other[key]
        assert line["iou"] == pytest.approx(other["iou"], abs=1e-3)  # an arg-max may flip on a tie
        assert line.get("loss", 0) == pytest.approx(other.get("loss", 0), rel=1e-5)
    losses = [line["loss"] for line in one if line["split"] == "train"]
    assert min(abs(a - b) / a for a, b in itertools.combinations(losses, 2)) > 1e-5  # another crop would be seen
    assert output.count("skipped: ") == 3
    assert description(tmp_path / "two")["skipped"] == 8


def test_a_run_that_failed_goes_on_without_the_file(recipe, data, tmp_path, monkeypatch):
    """What the option is for: it may be switched on when a run is resumed."""
    path = data / "images" / "train" / "002.png"
    with monkeypatch.context() as patch:
        at_step(patch, 3, lambda: break_file(path))
        with pytest.raises(BrokenFileError):
            train(recipe, tmp_path / "run")
    trainer = train(recipe, tmp_path / "run", SKIP, resume=True)
    assert trainer.state.step == 12
    assert trainer.state.skipped > 0


def test_a_run_of_before_the_option_can_be_resumed(recipe, tmp_path, monkeypatch):
    """Its checkpoint knows nothing of skipped crops, of the gradient's norm and of averaged weights."""
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        at_step(patch, 6, interrupt)
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run")
    stored = checkpoint(tmp_path / "run", 5)
    config = load_config(recipe)
    trainer = Trainer(config, tmp_path / "other")
    window = stored.pop("window")
    stored.pop("skipped")
    stored.pop("averaged")
    state, found = restored(trainer._setup, {**stored, "window": window[:-4], "seconds": 0.0, "compute": 0.0})
    assert torch.equal(found.values, torch.cat([window[:-4], torch.zeros(4)]))
    assert state.skipped == 0


AUGMENTATION = Augmentation((24, 24))


def test_the_next_image_that_can_be_read_takes_the_place(tmp_path):
    root = write_folder(tmp_path)
    for number in (2, 3, 5):
        break_file(root / "images" / "train" / f"{number:03}.png")
    dataset = open_folder(root, "train")
    crops = CropDataset(dataset, AUGMENTATION, skip_broken=True)
    for drawn, instead, names in ((2, 4, ["002", "003"]), (5, 0, ["005"]), (1, 1, [])):
        image, label, draw, broken = crops[Draw(drawn, 77, 0, 3, 4)]
        assert draw == (Draw(instead, 77) if names else Draw(drawn, 77, 0, 3, 4))
        expected = crop(*read_pair(dataset, instead), AUGMENTATION, 77, None if names else (3, 4))
        np.testing.assert_array_equal(image, expected[0])
        np.testing.assert_array_equal(label, expected[1])
        assert [error.path.stem for error in broken] == names


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_but_broken_images_is_an_error(tmp_path, workers):
    root = write_folder(tmp_path)
    dataset = open_folder(root, "train")
    sampler = CropSampler(build_index(dataset), SamplingConfig(lag=9), 0)
    for path in (root / "images" / "train").iterdir():
        break_file(path)
    stream = DrawStream(sampler, batch=2, accumulate=1, rank=0, ranks=1, first=0, last=3)
    with pytest.raises(UserError, match=r"train: no image can be read; .*\.png: the image cannot be decoded"):
        next(crop_loader(dataset, AUGMENTATION, stream, workers=workers, lag=9, skip_broken=True))


def test_a_broken_label_is_never_aimed_at_and_no_cache_hides_it(tmp_path):
    root, cache = write_folder(tmp_path / "data"), tmp_path / "cache"
    path = root / "labels" / "train" / "003.png"
    break_file(path)
    for _ in range(2):
        reported = []
        index = class_index(open_folder(root, "train"), cache, reported.append)
        assert [error.path for error in reported] == [path]
        assert all(3 not in index.images_with(label) for label in range(3))
        with pytest.raises(BrokenFileError, match=r"003\.png"):
            class_index(open_folder(root, "train"), cache)
    sampler = CropSampler(index, SamplingConfig(mix=1.0), 0)
    assert {draw.image for draw in sampler.step(0, 300)} == {0, 1, 2, 4, 5}
    save(path, np.zeros((40, 60)))
    reported = []
    whole = class_index(open_folder(root, "train"), cache, reported.append)
    assert not reported
    assert 3 in whole.images_with(0)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("skip", [False, True])
def test_evaluate_refuses_by_name_or_honours_the_run(tmp_path, command, skip):
    root = tmp_path / "data"
    folder = write_run(tmp_path / "run", small_config(root), steps=(5, 10))
    config = folder.config.read_text().replace("skip_broken: false", f"skip_broken: {str(skip).lower()}")
    folder.config.write_text(config)
    path = break_file(root / "images" / "val" / "001.png", "rubbish")
    arguments = ("evaluate", folder.path, "--checkpoint", "5,10", "--model", "tiny_model.build")
    code, output, message = command(*arguments)
    problem = f"{path}: not an image that Pillow can read\n"
    if not skip:
        assert (code, output, message) == (2, "", f"error: {problem}")
        return
    assert (code, message) == (0, f"skipped: {problem}")
    assert "data/val: 3 images (1 of them skipped), tiling none" in output
    stored = json.loads((folder.path / "evaluation-val-none-5+10.json").read_text())
    assert [entry["skipped"] for entry in stored["checkpoints"]] == [1, 1]


NUMBERS = ("EMFILE", "ENFILE", "EIO", "ESTALE", "ENOMEM", "ENOTCONN")
TROUBLES = {
    **{name: OSError(getattr(errno, name), name) for name in NUMBERS},
    "memory": MemoryError(),
    "a decoder's memory": OSError("out of memory error when reading image file"),
}


def trouble(patch, kind, affected=lambda path: path.name == "002.png"):
    """The system does not let these files be read, whole as they are."""
    real = Image.open

    def failing(path, *arguments, **options):
        if affected(path):
            raise TROUBLES[kind]
        return real(path, *arguments, **options)

    patch.setattr(Image, "open", failing)


@pytest.fixture(params=TROUBLES)
def kind(request):
    return request.param


def assert_names_the_file(caught, path):
    """One line that begins with the path; the file itself is not called broken."""
    assert not isinstance(caught.value, BrokenFileError)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("workers", "kind"), [(0, "EIO"), (2, "EIO"), (2, "memory")])
def test_a_file_that_the_machine_cannot_read_is_not_skipped(recipe, data, tmp_path, monkeypatch, workers, kind):
    """A flaky disk would shrink the dataset. The steps so far are saved, and the run goes on when the disk does."""
    options, began = (SKIP, f"data.workers={workers}"), tmp_path / "trouble"
    with monkeypatch.context() as patch:
        # In the workers, too. Images alone: a worker may be between the two files of a crop.
        trouble(patch, kind, lambda path: path.parts[-3:-1] == ("images", "train") and began.exists())
        at_step(patch, 4, began.touch)
        with pytest.raises(UserError) as caught:
            train(recipe, tmp_path / "run", *options)
    assert_names_the_file(caught, data / "images" / "train" / Path(str(caught.value).split(": ")[0]).name)
    step = description(tmp_path / "run")["step"]
    assert checkpoint(tmp_path / "run", step)["step"] == step > 0
    trainer = train(recipe, tmp_path / "run", *options, resume=True)
    assert (trainer.state.step, trainer.state.skipped) == (12, 0)


def test_nor_left_out_of_the_index(tmp_path, monkeypatch, kind):
    root = write_folder(tmp_path / "data")
    trouble(monkeypatch, kind)
    with pytest.raises(UserError) as caught:
        class_index(open_folder(root, "train"), tmp_path / "cache", pytest.fail)
    assert_names_the_file(caught, root / "labels" / "train" / "002.png")


def test_nor_out_of_a_score(tmp_path, monkeypatch, kind):
    dataset = open_folder(write_folder(tmp_path / "data"), "train")
    trouble(monkeypatch, kind)
    with pytest.raises(UserError) as caught:
        score(lambda image: np.zeros((40, 60), np.uint8), dataset, range(6), lambda: None, skip_broken=True)
    assert_names_the_file(caught, tmp_path / "data" / "images" / "train" / "002.png")


def test_nor_when_only_its_time_is_asked_for(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "data")
    dataset = open_folder(root, "train")
    real, path = Path.stat, root / "labels" / "train" / "002.png"

    def failing(self, **options):
        if self == path:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(self, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        with pytest.raises(UserError) as caught:
            class_index(dataset, tmp_path / "cache", pytest.fail)
    assert_names_the_file(caught, path)


def test_a_check_lists_it_and_goes_on(tmp_path, monkeypatch, command, kind):
    root = write_folder(tmp_path / "data")
    trouble(monkeypatch, kind)
    break_file(root / "images" / "train" / "004.png", "rubbish")
    code, output, _ = command("data", "check", "folder", root)
    assert code == 1
    faults = [line for line in output.splitlines() if line.startswith("fault: ")]
    assert [Path(line.split(": ")[1]).name for line in faults] == ["002.png", "004.png"]
