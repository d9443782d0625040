"""Short trainings: a recipe for the small dataset of small_data.py, and what a run left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import yaml

from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs.checkpoints import checkpoint_path, read_checkpoint
from small_data import write_folder

if TYPE_CHECKING:
    from losspool.segmentation.training.trainer import Trainer


def write_recipe(folder: Path, **train) -> Path:
    """A recipe on six images that trains in a second or two."""
    data = folder / "data"
    if not data.exists():
        write_folder(data, "train", count=6)
        write_folder(data, "val", count=3)
    content = {
        "data": {
            "name": "folder",
            "root": str(data),
            "crop": [24, 24],
            "workers": 0,
            "cache": str(folder / "cache"),
        },
        "model": {"name": "tiny_model.build"},
        "sampling": {"lag": 9, "decay": 0.5},
        "train": {
            "steps": 12,
            "batch": 2,
            "lr": 0.02,
            "log_every": 4,
            "validate_every": 6,
            "checkpoint_every": 5,
            "previews": 1,
            **train,
        },
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def train(recipe: Path, out: Path, *overrides: str, resume: bool = False) -> Trainer:
    from losspool.segmentation.training.trainer import Trainer  # not above: many tests only start processes

    trainer = Trainer(load_config(recipe, overrides), out, resume=resume)
    trainer.run()
    return trainer


def at_step(patch, step: int, action) -> None:
    """Do something as the step begins, the first of all being step 1."""
    from losspool.segmentation.training.trainer import Trainer

    real = Trainer._step

    def struck(self, *arguments):
        if self.state.step == step - 1:
            action()
        return real(self, *arguments)

    patch.setattr(Trainer, "_step", struck)


def metrics(out: Path) -> list[dict]:
    """Without the times, which are all that may differ between two equal runs."""
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


def checkpoint(out: Path, step: int) -> dict:
    content = read_checkpoint(checkpoint_path(out / "checkpoints", step))
    for name in ("seconds", "compute"):
        content.pop(name)
    return content


def assert_equal(a, b, where="checkpoint"):
    """To the bit, however deep."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_equal(one, other, f"{where}[{number}]")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    else:
        assert a == b, where
