"""A read that hangs outside the loader, where no timeout ends it: the run can still be stopped."""

import shutil
import signal
import time

import numpy as np
import pytest

from faults.bad_files import hang, hung
from losspool.segmentation.base.process import Interrupted
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.training.validation import Previews
from real_runs import description, outcome, until
from runs_for_tests import assert_equal, checkpoint, metrics, train, write_recipe
from small_data import noise, save, write_folder

BEFORE = 100
STEPS = BEFORE + 12
SLACK = 30
"""Seconds in which a run must have ended: it takes two or three, on a busy machine ten."""


def ended(process):
    began = time.monotonic()
    code, output = outcome(process)
    assert time.monotonic() - began < SLACK
    assert "Traceback" not in output
    assert not process.family()
    return code, output


def test_in_a_validation(tmp_path, launch):
    """What was trained before it is saved; when the disk is back, the run goes on as if nothing had happened."""
    recipe, out = write_recipe(tmp_path, steps=STEPS, validate_every=BEFORE, checkpoint_every=STEPS), tmp_path / "run"
    image, whole = tmp_path / "data" / "images" / "val" / "001.png", tmp_path / "whole.png"
    shutil.copy(image, whole)
    process = launch("train", recipe, "--out", out)
    assert until((out / "metrics.jsonl").exists)
    hang(image)
    with hung(image):
        process.send_signal(signal.SIGTERM)
        code, output = ended(process)
    assert code == 143, output
    assert f"stopped at step {BEFORE}; resume with: losspool train" in output
    assert (description(out)["status"], checkpoint(out, BEFORE)["validated"]) == ("stopped", 0)
    shutil.move(whole, image)
    train(recipe, out, resume=True)
    train(recipe, tmp_path / "undisturbed")
    assert_equal(checkpoint(out, STEPS), checkpoint(tmp_path / "undisturbed", STEPS))
    assert metrics(out) == metrics(tmp_path / "undisturbed")


@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, (1, 130)), (signal.SIGTERM, (-signal.SIGTERM,))])
def test_while_the_class_index_is_built(tmp_path, launch, number, codes):
    """Nothing is trained yet, so there is nothing to save: the command ends as others do."""
    recipe, root = write_recipe(tmp_path), tmp_path / "voc"
    image = save(root / "JPEGImages" / "one.jpg", noise(40, 60))
    label = save(root / "SegmentationClass" / "one.png", np.zeros((40, 60)))
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text(f"{image.stem}\n")
    hang(label)  # VOC's layout, because it asks no more than whether the files of a list are there
    process = launch("train", recipe, "data.name=voc", f"data.root={root}", "data.val=train", "--out", tmp_path / "run")
    with hung(label):
        process.send_signal(number)
        code, output = ended(process)
    assert code in codes, output
    assert not (tmp_path / "run").exists()


def test_in_a_preview(tmp_path):
    dataset = open_folder(write_folder(tmp_path / "data"), "train")
    hang(tmp_path / "data" / "images" / "train" / "000.png")  # only now, as it would not be taken for an image
    began = time.monotonic()

    def watch():
        raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        Previews(tmp_path / "previews", dataset, 2).write_sources(watch)
    assert time.monotonic() - began < SLACK
