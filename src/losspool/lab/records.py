"""What the lab knows of a run: the text files in its folder, and nothing else. No network, no data set is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from losspool.lab.image_counts import ImageCounts
from losspool.segmentation.base import UserError, read_json, say
from losspool.segmentation.config import Config, load_config
from losspool.segmentation.data import ClassInfo
from losspool.segmentation.runs import RunFolder, read_metrics

Summary = dict[str, Any]
"""Of a checkpoint: miou, iou and pixels per class, and what else metrics.jsonl or an evaluation holds of it; its
``per_image`` as :class:`ImageCounts`."""


@dataclass(frozen=True)
class Run:
    """A run that has been validated at least once, or that failed."""

    folder: RunFolder
    config: Config
    description: dict[str, Any]
    """run.json."""
    classes: tuple[ClassInfo, ...]
    metrics: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def failed(self) -> bool:
        """It ended with an error, such as a loss that is not finite: it has no last score."""
        return self.description.get("status") == "failed"

    @cached_property
    def train(self) -> list[dict[str, Any]]:
        """The lines of training, by step."""
        return [line for line in self.metrics if line["split"] == "train"]

    @cached_property
    def validations(self) -> dict[int, Summary]:
        """The lines of validation, by step."""
        return {line["step"]: line for line in self.metrics if line["split"] == "val"}

    def evaluation_file(self, wanted: str) -> Path:
        """The file evaluation-*.json that ``wanted`` means, see :func:`meant`."""
        found = [path.stem.removeprefix("evaluation-") for path in self.folder.path.glob("evaluation-*.json")]
        chosen = meant(wanted, found)
        if len(chosen) != 1:
            named = ", ".join(sorted(chosen or found)) or "none"
            problem = "several evaluations begin" if chosen else "no evaluation begins"
            raise UserError(f"{self.folder.path}: {problem} with {wanted!r}; there are: {named}")
        return self.folder.path / f"evaluation-{chosen[0]}.json"

    def evaluation(self, wanted: str) -> dict[int, Summary]:
        """By step, from :meth:`evaluation_file`."""
        path = self.evaluation_file(wanted)
        entries = _of(path, read_json(path), "checkpoints", list)
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
                raise UserError(f"{path}: has a checkpoint without step")
            _check(path, entry, len(self.classes))
            if "per_image" in entry:  # older evaluations have none
                entry["per_image"] = _image_counts(path, entry, len(self.classes))
        if not entries:
            raise UserError(f"{path}: has no checkpoints")
        return {entry["step"]: entry for entry in entries}

    def scores(self, source: str) -> dict[int, Summary]:
        """By step: of ``validation`` as it happened in training, or of an evaluation, see :meth:`evaluation`."""
        if source == VALIDATION:
            return self.validations
        if source not in self._evaluations:
            self._evaluations[source] = self.evaluation(source)
        return self._evaluations[source]

    @cached_property
    def _evaluations(self) -> dict[str, dict[int, Summary]]:
        """Those read so far."""
        return {}


VALIDATION = "validation"


def meant(wanted: str, names: Sequence[str]) -> list[str]:
    """Of evaluations the one that is called ``wanted``, or else all whose names begin with it."""
    return [wanted] if wanted in names else [name for name in names if name.startswith(wanted)]


def read_run(path: Path) -> Run:
    """Of a folder that ``losspool train`` wrote."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise UserError(f"{path}: not the folder of a run (it has no config.yaml)")
    description = read_json(folder.description)
    try:
        classes = tuple(map(ClassInfo.of, _of(folder.description, description, "classes", list)))
    except ValueError as error:
        raise UserError(f"{folder.description}: {error}") from None
    run = Run(folder, load_config(folder.config), description, classes, read_metrics(folder.metrics))
    for line in run.validations.values():
        _check(folder.metrics, line, len(classes))
    return run


def _check(path: Path, summary: Summary, classes: int) -> None:
    ious = summary.get("iou")
    whole = isinstance(summary.get("miou"), float) and isinstance(ious, list) and len(ious) == classes
    if not whole or not all(iou is None or isinstance(iou, float) for iou in ious or ()):
        raise UserError(f"{path}: the scores of step {summary['step']} do not fit the run's classes")


def _image_counts(path: Path, summary: Summary, classes: int) -> ImageCounts:
    try:
        return ImageCounts.of(summary["per_image"], classes)
    except ValueError as error:
        raise UserError(f"{path}: the counts per image of step {summary['step']} are damaged ({error})") from None


def find_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs in these folders: each is one, or holds some at any depth.

    Those without a validation are left out, unless they failed: that is a result, too.
    """
    runs = []
    for folder in dict.fromkeys(found for path in paths for found in run_folders(path)):
        begun = RunFolder(folder).metrics.exists() or RunFolder(folder).description.exists()
        run = read_run(folder) if begun else None
        if run is not None and (run.validations or run.failed):
            runs.append(run)
        else:
            say(f"left out: {folder} has no validation yet")
    return runs


def run_folders(path: Path) -> Iterator[Path]:
    """Of the runs in a folder, at any depth; the folder itself, if it is one."""
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    found = sorted(config.parent for config in path.rglob("config.yaml"))
    if not found:
        raise UserError(f"{path}: holds no run (no config.yaml)")
    yield from found


def _of(path: Path, content: dict[str, Any], key: str, kind: type) -> Any:
    if not isinstance(content.get(key), kind):
        raise UserError(f"{path}: has no {key}")
    return content[key]
