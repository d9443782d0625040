"""Four small images to learn by heart: what every network must be able to do."""

import shutil
from pathlib import Path

import numpy as np
import yaml

from losspool.segmentation.prediction import TrainedRun
from losspool.segmentation.prediction.export import export_run
from losspool.segmentation.runs import checkpoint_path
from runs_for_tests import assert_equal, checkpoint, metrics, train
from small_data import CLASSES, noise, save, write_classes

BLOCK = 32
"""Labels are squares of this size, so that networks with coarse logits can draw them."""

WITH_STATE = ("train.optimizer=adamw", "train.lr=0.001", "train.ema=0.9")
"""Settings of a run that has the most to save: the moments of AdamW, and averaged weights."""


def write_four(folder: Path, size: int = 96) -> Path:
    """Images of noise, and a recipe that trains on all four at each step and validates on them."""
    data = folder / "data"
    write_classes(data)
    ids = np.array([each["id"] for each in CLASSES], np.uint8)
    for number in range(4):
        squares = np.random.default_rng(number).integers(0, len(ids), (size // BLOCK, size // BLOCK))
        save(data / "images/all" / f"{number}.png", noise(size, size, seed=number))
        save(data / "labels/all" / f"{number}.png", np.kron(ids[squares], np.ones((BLOCK, BLOCK))))
    content = {
        "method": "base",
        "data": {"name": "folder", "root": str(data), "train": "all", "val": "all", "crop": [size, size]},
        "train": {"batch": 4, "steps": 60, "lr": 0.02, "validate_every": 20, "previews": 0, "weight_decay": 0},
    }
    content["data"] |= {"scale": [1, 1], "flip": False, "workers": 0, "cache": str(folder / "cache")}
    content["train"] |= {"head_factor": 1, "warmup": 5}
    path = folder / "four.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def check_network(
    folder: Path, name: str, *overrides: str, size: int = 96, suffixes: tuple[str, ...] = ("onnx", "pt2")
) -> float:
    """Overfit the images, then stop, resume and export a short run; return the best mIoU."""
    recipe, model = write_four(folder, size), (f"model.name={name}", *overrides)
    best = train(recipe, folder / "run", *model).state.best["miou"]
    short = (*model, "train.steps=3", "train.checkpoint_every=1", "train.keep_last=3", *WITH_STATE)
    train(recipe, folder / "whole", *short)
    shutil.copytree(folder / "whole", folder / "parts")
    for step in (2, 3):  # as after a kill during step 2
        checkpoint_path(folder / "parts" / "checkpoints", step).unlink()
    train(recipe, folder / "parts", *short, resume=True)
    assert_equal(checkpoint(folder / "parts", 3), checkpoint(folder / "whole", 3))
    assert metrics(folder / "parts") == metrics(folder / "whole")
    for suffix in suffixes:
        export_run(TrainedRun.open(folder / "run").load_one("last"), folder / f"model.{suffix}")  # compares the logits
    return float(best)
