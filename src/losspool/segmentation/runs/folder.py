"""A run's folder: the paths of its files, and checks before a run starts or resumes there."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from losspool.segmentation.base import PARTIAL, UserError, read_json, read_yaml, replacing
from losspool.segmentation.config import RECIPES, Config, dump_config, load_config
from losspool.segmentation.runs.checkpoints import DamagedError, checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.runs.lock import LOCK
from losspool.segmentation.runs.run_log import read_metrics, status


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
        raise UserError(f"{folder.path}: the run has no checkpoint")
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
            raise UserError(f"{folder.path}: there is no checkpoint of step {step}; there are {found}")
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


FREE_TO_CHANGE = {
    "data.root",
    "data.cache",
    "data.workers",
    "data.timeout",
    "data.skip_broken",  # no effect if all files are intact; if one is not, no other run could be equal
    "model.weights",
    "train.keep_last",
    "train.keep_steps",
    "train.checkpoint_every",
    "train.log_every",
    "train.previews",
    "train.timeout",
    "train.trackers",
}
"""Settings that may differ when a run is resumed. None of them changes the numbers of the remaining steps."""


def check_folder(folder: RunFolder, config: Config, resume: bool) -> Config:
    """Check that the folder is free, or holds a run with this config that is to be resumed.

    Returns the config, for a run to resume with images read as it has read them so far. A run that ended before its
    first step blocks nothing: it may start again, with other settings too.
    """
    if folder.path.exists() and not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way of the run's folder")
    if not folder.config.exists():
        if folder.path.is_dir() and any(_is_content(path) for path in folder.path.iterdir()):
            raise UserError(f"{folder.path}: the folder holds other files; pass another one with --out")
        return config
    stepped = not never_stepped(folder)
    if not resume:
        if stepped:
            raise UserError(f"{folder.path}: the run exists; pass --resume to resume it, or another folder with --out")
        return config
    stored = load_config(folder.config)
    config = _as_begun(config, stored, folder)
    if stepped:
        _check_resumable(folder, flat(stored), flat(config))
    return config


def _check_resumable(folder: RunFolder, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that only settings change that do not change the numbers of the remaining steps, or ``train.steps``."""
    free = FREE_TO_CHANGE
    if not steps_in(folder.checkpoints):  # then the run starts over, so the initial weights matter
        free = free - {"model.weights"}
    elif wanted["train.global_batch"] is not None:  # which names the crops of a step
        free = free | {"train.batch", "train.accumulate"}
        free = free if stored["train.global_batch"] is not None else free | {"train.global_batch"}
    for key in wanted:
        if key == "train.steps" and stored[key] < wanted[key]:
            continue
        if key not in free and stored.get(key) != wanted[key]:
            hint = "; it may be raised, but not lowered" if key == "train.steps" else ""
            raise UserError(f"{folder.path}: its {key} is {stored.get(key)!r}, the command says {wanted[key]!r}{hint}")


def _as_begun(config: Config, stored: Config, folder: RunFolder) -> Config:
    """The config with images read as the run has read them so far.

    Its range of intensities was found when it began. Earlier versions ignored the EXIF orientation.
    """
    stated = read_yaml(folder.config, "the run's config") or {}
    intensity = stored.data.intensity if config.data.intensity == "auto" else config.data.intensity
    exif = config.data.exif if "exif" in stated.get("data", {}) else stored.data.exif
    return replace(config, data=replace(config.data, intensity=intensity, exif=exif))


def never_stepped(folder: RunFolder) -> bool:
    """Whether a run began here, and ended without a step that was logged or saved."""
    checkpoints = folder.checkpoints
    saved = checkpoints.is_symlink() or (checkpoints.exists() and (not checkpoints.is_dir() or steps_in(checkpoints)))
    if saved or read_metrics(folder.metrics):
        return False
    try:
        return not read_json(folder.description).get("step")
    except UserError:
        return False


def _is_content(path: Path) -> bool:
    """Whether a file in a run's folder is neither the lock nor a temporary file of a killed writer."""
    return path.suffix != PARTIAL and path.name != LOCK


def check_unsaved(folder: RunFolder, every: int) -> None:
    """Check that a run without checkpoints never had one: starting it over would truncate its metrics."""
    checkpoints = folder.checkpoints
    if (checkpoints.is_symlink() or checkpoints.exists()) and not checkpoints.is_dir():
        raise UserError(f"{checkpoints}: not a folder, or currently unavailable")
    logged = max((line["step"] for line in read_metrics(folder.metrics)), default=0)
    if logged > every or (logged and status(folder.description) in ("stopped", "finished")):
        raise UserError(
            f"{folder.path}: the run was at step {logged}, but its checkpoints are gone; "
            "restore them, or pass another folder with --out"
        )


def write_config(folder: RunFolder, config: Config) -> None:
    with replacing(folder.config) as partial:
        partial.write_text(dump_config(config), encoding="utf-8")


def flat(section: Any, prefix: str = "") -> dict[str, Any]:
    """The settings of a config by their dotted names. A mapping is one value."""
    found: dict[str, Any] = {}
    for each in fields(section):
        value, name = getattr(section, each.name), f"{prefix}{each.name}"
        found |= flat(value, f"{name}.") if is_dataclass(value) else {name: value}
    return found
