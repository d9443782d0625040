"""Whether a run may start or resume in a folder, and with which settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from losspool.segmentation.base import PARTIAL, UserError, read_json, read_yaml
from losspool.segmentation.config import Config, flat, load_config
from losspool.segmentation.runs.checkpoints import steps_in
from losspool.segmentation.runs.folder import RunFolder
from losspool.segmentation.runs.lock import LOCK
from losspool.segmentation.runs.run_log import read_metrics, status

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
