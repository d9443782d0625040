"""A run's folder: its name, the paths of its files, and the choice of a checkpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losspool.segmentation.base import UserError, replacing
from losspool.segmentation.config import RECIPES, Config, dump_config, load_config
from losspool.segmentation.runs.checkpoints import DamagedError, checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.runs.run_log import read_metrics


@dataclass(frozen=True)
class RunFolder:
    """Paths in a run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def description(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def previews(self) -> Path:
        return self.path / "previews"


def chosen_steps(folder: RunFolder, wanted: str) -> list[int]:
    """Parse ``last``, ``best`` (by validation) or steps such as ``150000,160000``. Each step must have a checkpoint."""
    found = steps_in(folder.checkpoints)
    if not found:
        raise UserError(f"{folder.path}: this folder has no checkpoints/step-*.pt; name the folder of a run")
    if wanted == "last":
        return found[-1:]
    if wanted == "best":
        step = _best_step(folder, newest=found[-1])
        if step not in found:
            raise UserError(f"{folder.metrics}: the best validation has no checkpoint, or there is no validation yet")
        return [step]
    try:
        steps = [int(text) for text in wanted.split(",")]
    except ValueError:
        raise UserError(f"a checkpoint is 'last', 'best' or steps such as 500,1000, got {wanted!r}") from None
    for step in steps:
        if step not in found:
            raise UserError(f"{folder.path}: no checkpoint of step {step}; choose from {found}")
    return steps


def own_checkpoint(path: str) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint at ``path``, or the newest one of the run there; None if it is neither."""
    found = Path(os.path.expanduser(path))
    if os.path.isdir(found):  # unlike pathlib's, does not raise if the name is too long
        (step,) = chosen_steps(RunFolder(found), "last")
        found = checkpoint_path(found / "checkpoints", step)
        return found, read_checkpoint(found)
    if found.suffix != ".pt" or not os.path.isfile(found):
        return None
    try:
        return found, read_checkpoint(found)
    except DamagedError:  # another package's file
        return None


def _best_step(folder: RunFolder, newest: int) -> int | None:
    """Step of the best validation up to the newest checkpoint. The first one wins a tie, as in training."""
    scored = {
        line["step"]: line.get("miou")
        for line in read_metrics(folder.metrics)
        if line["split"] == "val" and line["step"] <= newest
    }
    known = {step: miou for step, miou in scored.items() if isinstance(miou, int | float)}
    return max(known, key=lambda step: known[step]) if known else None


def run_name(config: Config) -> str:
    """``peanut-mine-lmp-0``: data, recipe, method and seed.

    The recipe is left out where it says nothing: if it is called ``recipe`` or like the data, or comes with the package
    for other data. A recipe whose name begins with that of the data, such as ``camvid-strong``, stands for both.
    """
    data = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in config.data.title).lstrip(".")
    data, recipe = data or "data", config.recipe
    if recipe == "recipe" or (recipe in RECIPES.files and load_config(recipe).data.title != config.data.title):
        recipe = data
    subject = recipe if recipe == data or recipe.startswith(f"{data}-") else f"{data}-{recipe}"
    return f"{subject}-{config.method}-{config.seed}"


def default_folder(config: Config, resume: bool) -> Path:
    """The folder of a run by its name. A run of version 0.1 is resumed under the name that it had then."""
    folder = Path("runs") / run_name(config)
    earlier = Path("runs") / f"{config.recipe}-{config.method}-{config.seed}"
    return earlier if resume and not folder.exists() and earlier.exists() else folder


def write_config(folder: RunFolder, config: Config) -> None:
    with replacing(folder.config) as partial:
        partial.write_text(dump_config(config), encoding="utf-8")
