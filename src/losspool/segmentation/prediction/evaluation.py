"""Evaluates checkpoints of a run on a split, and writes the scores as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from losspool import __version__
from losspool.segmentation.base import plain, progress_bar, replacing, write_json
from losspool.segmentation.config import EvaluateConfig
from losspool.segmentation.data import Groups, WarnOnce, check_classes, groups_of
from losspool.segmentation.prediction.regions import REGIONS
from losspool.segmentation.prediction.scoring import Scores, score
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.runs import RunFolder, source_commit

FORMAT = 1
COUNTS = ("hits", "labelled", "predicted")
"""Keys in ``per_image`` for the rows of :func:`losspool.segmentation.prediction.metrics.class_counts`."""
REGION_COUNTS = {region: tuple(f"{region}_{name}" for name in COUNTS) for region in REGIONS}
"""The same for the counts in each region."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1) over checkpoints, as in the paper's tables."""

    mean: float
    std: float | None
    """None for a single checkpoint."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}" + ("" if self.std is None else f" ± {100 * self.std:.2f}")


@dataclass(frozen=True)
class Evaluation:
    """The scores of one or more checkpoints under the same settings."""

    dataset: str
    """The dataset's name and split."""
    split: str
    images: int
    classes: tuple[str, ...]
    settings: EvaluateConfig
    zoom: float
    scores: dict[int, Scores]
    """By step."""
    groups: Groups
    """Which images belong together."""
    commit: str | None
    """losspool's commit when the evaluation started: the source may change while it runs."""

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """:meth:`Scores.summary` of each checkpoint."""
        return [scores.summary() for scores in self.scores.values()]

    def spread(self) -> Spread:
        """Mean and standard deviation of the mIoU."""
        return Spread.of([summary["miou"] for summary in self.summaries])

    def class_spreads(self) -> list[Spread | None]:
        """Mean and standard deviation of each class's IoU; None for a class that never occurs."""
        columns = zip(*(summary["iou"] for summary in self.summaries), strict=True)
        present = [[value for value in column if value is not None] for column in columns]
        return [Spread.of(values) if values else None for values in present]

    def to_dict(self) -> dict[str, Any]:
        """The content of the JSON file; see docs/evaluation.md."""
        mean, classes = self.spread(), self.class_spreads()
        checkpoints = zip(self.scores.items(), self.summaries, strict=True)
        return {
            "format": FORMAT,
            "version": __version__,
            "commit": self.commit,
            "dataset": self.dataset,
            "split": self.split,
            "images": self.images,
            "classes": list(self.classes),
            "video": self.groups.video,
            "settings": {**asdict(self.settings), "scales": list(self.settings.scales), "zoom": self.zoom},
            "checkpoints": [
                {
                    "step": step,
                    **summary,
                    "metrics": scores.metrics(),
                    "confusion": scores.matrix.tolist(),
                    "per_image": _per_image(scores, self.groups),
                }
                for (step, scores), summary in checkpoints
            ],
            "mean": {"miou": mean.mean, "iou": [None if each is None else each.mean for each in classes]},
            "std": {"miou": mean.std, "iou": [None if each is None else each.std for each in classes]},
        }


def evaluate_run(run: TrainedRun, steps: Iterable[int], split: str, settings: EvaluateConfig) -> Evaluation:
    """Score the checkpoints one by one."""
    config, dataset = run.config, run.dataset(split)
    groups = groups_of(dataset)
    found: dict[int, Scores] = {}
    commit = source_commit()
    warn = WarnOnce()
    for step in dict.fromkeys(steps):
        trained = run.load(step)
        check_classes(trained.classes, dataset)
        with progress_bar() as progress:
            task = progress.add_task(plain(f"Step {step} on {dataset.name}"), total=len(dataset))
            advance = partial(progress.advance, task)
            predict, every = trained.predictor(settings), range(len(dataset))
            found[step] = score(
                predict, dataset, every, lambda: None, config.data.skip_broken, regions=True, done=advance
            )
        for error in found[step].broken or ():
            warn(error)
    names = tuple(info.name for info in dataset.classes)
    return Evaluation(dataset.name, split, len(dataset), names, settings, config.data.zoom, found, groups, commit)


def write_evaluation(folder: RunFolder, evaluation: Evaluation) -> Path:
    """Write JSON to the run's folder, named by :func:`evaluation_name`. One line per entry, checkpoint and image."""
    name = evaluation_name(evaluation.split, evaluation.settings, evaluation.scores)
    path = folder.path / f"{name}.json"
    lines = (f"{json.dumps(key)}: {_value(value)}" for key, value in evaluation.to_dict().items())
    with replacing(path) as partial:
        write_json(partial, "{\n" + ",\n".join(lines) + "\n}")
    return path


def _per_image(scores: Scores, groups: Groups) -> list[dict[str, Any]]:
    names = list(scores.per_image)
    found = groups.of(names)
    known = {} if found is None else dict(zip(names, found, strict=True))
    return [
        {
            "image": name,
            **({"group": known[name]} if known else {}),
            **dict(zip(COUNTS, counts.tolist(), strict=True)),
            **{
                key: row.tolist()
                for region, keys in REGION_COUNTS.items()
                for key, row in zip(keys, scores.regions[region][name], strict=True)
            },
        }
        for name, counts in scores.per_image.items()
    ]


def _value(value: Any) -> str:
    """Encode as JSON, with each object of a list on its own line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(_value, value)) + "\n]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def evaluation_name(split: str, settings: EvaluateConfig, steps: Iterable[int]) -> str:
    """The name of an evaluation's file, without suffix."""
    listed = list(map(str, steps))
    split = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in split)
    parts = ["evaluation", split, settings.tiling]
    if settings.scales != (1.0,):
        parts.append("x".join(map(str, settings.scales)))
    if settings.flip:
        parts.append("flip")
    # Listing many steps would exceed the length limit of file names.
    parts.append("+".join(listed) if len(listed) <= 8 else f"{listed[0]}..{listed[-1]}")
    return "-".join(parts)
