"""Reads runs: the text files in a run's folder, and nothing else. No network or dataset is opened."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import UserError, read_json, say
from losspool.segmentation.config import Config, load_config
from losspool.segmentation.data import ClassInfo, is_video
from losspool.segmentation.prediction import COUNTS, REGION_COUNTS, iou_of_counts, mean_of_present, none_if_nan
from losspool.segmentation.runs import RunFolder, read_metrics

VALIDATION = "validation"

Summary = dict[str, Any]
"""Scores of a checkpoint: ``miou``, ``iou`` and ``pixels`` per class, and whatever else metrics.jsonl or an evaluation
holds. ``per_image`` is an :class:`ImageCounts`."""


@dataclass(frozen=True, eq=False)
class ImageCounts:
    """Counts of one checkpoint on each image."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]
    """(N, 3, C): hits, labelled pixels and predicted pixels of each class."""
    regions: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """The same near outlines and inside, by region; evaluations of earlier versions lack some."""
    groups: tuple[str, ...] | None = None
    """The group of each image, if the data have groups."""
    video: bool = False
    """Whether the images are frames, numbered at the end of their names."""
    block: int | None = None
    """How many neighbouring images are resampled together; None leaves it to ``groups`` and ``video``."""

    @classmethod
    def of(cls, lines: Any, classes: int, video: bool = False) -> ImageCounts:
        """Parse an evaluation's ``per_image``. Raises a ValueError unless it holds counts of ``classes`` classes."""
        try:
            names = tuple(line["image"] for line in lines)
            counts = _counts(lines, COUNTS, classes)
            there = {region: keys for region, keys in REGION_COUNTS.items() if keys[0] in lines[0]}
            regions = {region: _counts(lines, keys, classes) for region, keys in there.items()}
            groups = tuple(str(line["group"]) for line in lines) if "group" in lines[0] else None
        except (TypeError, KeyError, IndexError) as error:
            raise ValueError(f"not counts of images: {error!r}") from None
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError("not counts of images with distinct names")
        return cls(names, counts, regions, groups, video)

    def only(self, pattern: str) -> ImageCounts:
        """Keep the images whose names match a pattern such as ``Seq05VD*``."""
        places = [place for place, name in enumerate(self.names) if fnmatchcase(name, pattern)]
        regions = {region: counts[places] for region, counts in self.regions.items()}
        groups = None if self.groups is None else tuple(self.groups[place] for place in places)
        names = tuple(self.names[place] for place in places)
        return replace(self, names=names, counts=self.counts[places], regions=regions, groups=groups)

    def only_classes(self, places: Sequence[int]) -> ImageCounts:
        """Keep the classes at these places."""
        regions = {region: counts[:, :, places] for region, counts in self.regions.items()}
        return replace(self, counts=self.counts[:, :, places], regions=regions)

    def summary(self) -> Summary:
        """Scores over all these images, in the form of an evaluation."""
        summed = self.counts.sum(0)
        ious = iou_of_counts(summed.astype(np.float64))
        return {
            "miou": mean_of_present(ious),
            "iou": [*map(none_if_nan, ious)],
            "pixels": summed[1].tolist(),
        }

    def labelled_as(self, other: ImageCounts) -> bool:
        """Whether both count the same images with the same labels."""
        return self.names == other.names and np.array_equal(self.counts[:, 1], other.counts[:, 1])


def _counts(lines: Any, kinds: Sequence[str], classes: int) -> NDArray[np.int64]:
    """(N, 3, C): the counts under these keys. Raises a ValueError unless they are counts of ``classes`` classes."""
    counts = np.array([[line[kind] for kind in kinds] for line in lines])
    if not np.issubdtype(counts.dtype, np.integer) or counts.shape != (len(lines), len(kinds), classes):
        raise ValueError("not counts of these classes")
    hits, labelled, predicted = counts.transpose(1, 0, 2)
    if (hits < 0).any() or (hits > labelled).any() or (hits > predicted).any():
        raise ValueError("more hits than pixels")
    return counts


@dataclass(frozen=True, eq=False)
class Run:
    """A run with scores, or a failed one."""

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
        """Whether it ended with an error, such as a loss that is not finite. It then has no final score."""
        return self.description.get("status") == "failed"

    @cached_property
    def train(self) -> list[dict[str, Any]]:
        """Lines of training, by step."""
        return [line for line in self.metrics if line["split"] == "train"]

    @cached_property
    def validations(self) -> dict[int, Summary]:
        """Lines of validation, by step."""
        return {line["step"]: line for line in self.metrics if line["split"] == "val"}

    def evaluation_file(self, wanted: str) -> Path:
        """The file evaluation-*.json that ``wanted`` names, see :func:`matching_names`."""
        found = [path.stem.removeprefix("evaluation-") for path in self.folder.path.glob("evaluation-*.json")]
        chosen = matching_names(wanted, found)
        if len(chosen) != 1:
            named = ", ".join(_shortest(chosen or found)) or "none"
            problem = "several evaluations begin" if chosen else "no evaluation begins"
            raise UserError(f"{self.folder.path}: {problem} with {wanted!r}; there are: {named}")
        return self.folder.path / f"evaluation-{chosen[0]}.json"

    def scores(self, source: str) -> dict[int, Summary]:
        """Scores by step: of the validations during training, or of the evaluation that ``source`` names."""
        if source == VALIDATION:
            return self.validations
        if source not in self._evaluations:
            self._evaluations[source] = self._evaluation(source)
        return self._evaluations[source]

    @cached_property
    def _evaluations(self) -> dict[str, dict[int, Summary]]:
        """Evaluations read so far."""
        return {}

    def _evaluation(self, wanted: str) -> dict[int, Summary]:
        path = self.evaluation_file(wanted)
        content = read_json(path)
        entries = _list(path, content, "checkpoints")
        # Evaluations of version 0.1 do not say it.
        video = content.get("video", is_video(self.config.data.name)) is True
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
                raise UserError(f"{path}: has a checkpoint without step")
            _check_scores(path, entry, len(self.classes))
            if "confusion" in entry:
                entry["confusion"] = _matrix(path, entry, len(self.classes))
            if "per_image" in entry:  # older evaluations have none
                try:
                    entry["per_image"] = ImageCounts.of(entry["per_image"], len(self.classes), video)
                except ValueError as error:
                    raise UserError(
                        f"{path}: the counts per image of step {entry['step']} are damaged ({error})"
                    ) from None
        if not entries:
            raise UserError(f"{path}: has no checkpoints")
        return {entry["step"]: entry for entry in entries}


def matching_names(wanted: str, names: Sequence[str]) -> list[str]:
    """The evaluation called ``wanted``, or else all so called without their steps, or else all that begin with it.

    >>> matching_names("val-none", ["val-none-500", "val-none-flip-500"])
    ['val-none-500']
    """
    exact = [name for name in names if wanted in (name, name.rpartition("-")[0])]
    return [wanted] if wanted in names else exact or [name for name in names if name.startswith(wanted)]


def _shortest(names: Sequence[str]) -> list[str]:
    """The names without their steps where these tell nothing apart."""
    short = {name.rpartition("-")[0] for name in names}
    return sorted(short if len(short) == len(names) else names)


def read_run(path: Path) -> Run:
    """Read a folder that ``losspool train`` wrote."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise UserError(f"{path}: not the folder of a run (it has no config.yaml)")
    description = read_json(folder.description)
    try:
        classes = tuple(map(ClassInfo.of, _list(folder.description, description, "classes")))
    except ValueError as error:
        raise UserError(f"{folder.description}: {error}") from None
    run = Run(folder, load_config(folder.config), description, classes, read_metrics(folder.metrics))
    for line in run.validations.values():
        _check_scores(folder.metrics, line, len(classes))
    return run


def find_runs(paths: Iterable[Path], source: str = VALIDATION) -> list[Run]:
    """The runs in these folders, at any depth. Runs without a score of ``source`` yet are skipped, unless they failed.

    Where scores come from an evaluation, runs that train without validation have them too.
    """
    runs = []
    for path in dict.fromkeys(found for each in paths for found in run_folders(each)):
        folder = RunFolder(path)
        run = read_run(path) if folder.metrics.exists() or folder.description.exists() else None
        unvalidated = run is not None and run.config.data.val is None
        if run is not None and (run.validations or run.failed or (unvalidated and source != VALIDATION)):
            runs.append(run)
        elif unvalidated:
            evaluate = shlex.join(["losspool", "evaluate", str(path), "--split", "test"])
            say(f"left out: {path} was trained without validation; run {evaluate}, and pass --scores test")
        else:
            say(f"left out: {path} has no validation yet")
    return runs


def run_folders(path: Path) -> list[Path]:
    """The folders of all runs in a folder, at any depth, including the folder itself."""
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    found = sorted(config.parent for config in path.rglob("config.yaml"))
    if not found:
        raise UserError(f"{path}: holds no run (no config.yaml)")
    return found


def _check_scores(path: Path, summary: Summary, classes: int) -> None:
    ious = summary.get("iou")
    valid = isinstance(summary.get("miou"), float) and isinstance(ious, list) and len(ious) == classes
    if not valid or not all(iou is None or isinstance(iou, float) for iou in ious or ()):
        raise UserError(f"{path}: the scores of step {summary['step']} do not fit the run's classes")


def _matrix(path: Path, summary: Summary, classes: int) -> NDArray[np.int64]:
    try:
        matrix = np.array(summary["confusion"])
    except ValueError:  # rows of different lengths
        matrix = np.empty(0)
    if matrix.shape != (classes, classes) or not np.issubdtype(matrix.dtype, np.integer) or (matrix < 0).any():
        raise UserError(f"{path}: the confusion matrix of step {summary['step']} does not fit the run's classes")
    return matrix


def _list(path: Path, content: dict[str, Any], key: str) -> list[Any]:
    if not isinstance(content.get(key), list):
        raise UserError(f"{path}: has no {key}")
    return content[key]
