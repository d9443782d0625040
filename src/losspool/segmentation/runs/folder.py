"""A run's folder: where everything lies, and what may be done with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from losspool.segmentation.base import PARTIAL, UserError, replacing
from losspool.segmentation.config import Config, dump_config, load_config
from losspool.segmentation.runs.checkpoints import steps_in
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
    """``last``, ``best`` (by validation), or steps such as ``150000,160000``: those that have a checkpoint."""
    found = steps_in(folder.checkpoints)
    if not found:
        raise UserError(f"{folder.path}: the run has no checkpoint")
    if wanted == "last":
        return found[-1:]
    if wanted == "best":
        step = _best_step(folder, newest=found[-1])
        if step not in found:
            raise UserError(f"{folder.metrics}: names no best validation whose checkpoint is there")
        return [step]
    try:
        steps = [int(text) for text in wanted.split(",")]
    except ValueError:
        raise UserError(f"a checkpoint is 'last', 'best' or steps such as 500,1000, got {wanted!r}") from None
    for step in steps:
        if step not in found:
            raise UserError(f"{folder.path}: there is no checkpoint of step {step}; there are {found}")
    return steps


def _best_step(folder: RunFolder, newest: int) -> int | None:
    """The step of the best validation up to the newest checkpoint; the first of equally good ones, as in training."""
    scored = {
        line["step"]: line.get("miou")
        for line in read_metrics(folder.metrics)
        if line["split"] == "val" and line["step"] <= newest
    }
    known = {step: miou for step, miou in scored.items() if isinstance(miou, int | float)}
    return max(known, key=lambda step: known[step]) if known else None


FREE_TO_CHANGE = {
    "data.root",
    "data.cache",
    "data.workers",
    "data.timeout",
    "data.skip_broken",  # where files are whole it does nothing, and where one is not there is no other run to equal
    "model.weights",
    "train.keep_last",
    "train.keep_steps",
    "train.tensorboard",
}
"""What may differ when a run is resumed: none of it changes a number of what is to come."""


def check_folder(folder: RunFolder, config: Config, resume: bool) -> None:
    """See that the folder is free, or of a run of this config that is to go on."""
    if folder.path.exists() and not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way of the run's folder")
    if folder.config.exists():
        if not resume:
            raise UserError(f"{folder.path}: the run exists; go on with --resume, or name another folder with --out")
        # Before the first checkpoint the run begins anew, and then the weights do matter.
        free = FREE_TO_CHANGE if steps_in(folder.checkpoints) else FREE_TO_CHANGE - {"model.weights"}
        stored, wanted = (flat(asdict(each)) for each in (load_config(folder.config), config))
        for key in wanted:
            if key not in free and stored.get(key) != wanted[key]:
                raise UserError(f"{folder.path}: its {key} is {stored.get(key)!r}, the command says {wanted[key]!r}")
    elif folder.path.is_dir() and any(_is_content(path) for path in folder.path.iterdir()):
        raise UserError(f"{folder.path}: the folder holds other things; name another one with --out")


def _is_content(path: Path) -> bool:
    """Whether a file in a run's folder is more than a lock, or what a killed writer left."""
    return path.suffix != PARTIAL and path.name != LOCK


def check_unsaved(folder: RunFolder, every: int) -> None:
    """See that a run without checkpoints never had one: to begin it anew would cut off its metrics."""
    checkpoints = folder.checkpoints
    if (checkpoints.is_symlink() or checkpoints.exists()) and not checkpoints.is_dir():
        raise UserError(f"{checkpoints}: not a folder, or one that is not there now")
    logged = max((line["step"] for line in read_metrics(folder.metrics)), default=0)
    if logged > every or (logged and status(folder.description) in ("stopped", "finished")):
        raise UserError(
            f"{folder.path}: the run was at step {logged}, but its checkpoints are gone; "
            "put them back, or name another folder with --out"
        )


def write_config(folder: RunFolder, config: Config) -> None:
    with replacing(folder.config) as partial:
        partial.write_text(dump_config(config), encoding="utf-8")


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
