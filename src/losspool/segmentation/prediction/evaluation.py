"""Evaluates checkpoints of a run on a split: prints a table and writes JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from losspool import __version__
from losspool.segmentation.base import counted, number_tables, plain, progress_bar, replacing, write_json
from losspool.segmentation.config import EvaluateConfig
from losspool.segmentation.data import FileDataset, Groups, WarnOnce, check_classes
from losspool.segmentation.prediction.metrics import METRICS, shares_of_labels
from losspool.segmentation.prediction.regions import REGIONS
from losspool.segmentation.prediction.scoring import Scores, score
from losspool.segmentation.prediction.trained_run import TrainedRun, changed
from losspool.segmentation.runs import RunFolder, source_commit

FORMAT = 1
COUNTS = ("hits", "labelled", "predicted")
"""Keys in ``per_image`` for the rows of :func:`losspool.segmentation.prediction.metrics.class_counts`."""
REGION_COUNTS = {region: tuple(f"{region}_{name}" for name in COUNTS) for region in REGIONS}
"""The same for the counts in each region."""
_NONE = "–"


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
    groups = dataset.groups if isinstance(dataset, FileDataset) else Groups()
    return Evaluation(dataset.name, split, len(dataset), names, settings, config.data.zoom, found, groups, commit)


def report_evaluation(
    path: Path,
    checkpoint: str,
    split: str | None,
    *,
    confusion: bool = False,
    trusted: Collection[str] = (),
    **inference: Any,
) -> None:
    """``losspool evaluate``: score checkpoints of a run, print the scores and write them to its folder.

    Args:
        path: the run's folder.
        checkpoint: ``last``, ``best`` or steps such as ``500,1000``.
        split: the split to score (default: validation).
        confusion: also print the confusion matrix.
        trusted: import paths of code that may run.
        inference: tiling, scales and flip; see :func:`changed`.
    """
    run = TrainedRun.open(path, trusted)
    settings, steps = changed(run.config.evaluate, **inference), run.steps(checkpoint)
    evaluation = evaluate_run(run, steps, run.split(split), settings)
    output = Console(highlight=False)
    try:
        output.print(plain(heading(evaluation)), markup=False, soft_wrap=True)
        kinds = [score_tables, metric_tables, *([confusion_tables] if confusion else []), look_tables]
        for table in (table for kind in kinds for table in kind(evaluation, output.width)):
            output.print(table)
            output.print()
    finally:  # print first, in case the folder is read-only; write even if stdout is closed
        written = write_evaluation(run.folder, evaluation)
    output.print(plain(f"written: {written}"), markup=False, soft_wrap=True)


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


def score_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """IoU in percent: one row per class and one for the mean, one column per checkpoint, and mean ± std if several."""
    several = len(evaluation.scores) > 1
    values = zip(*(summary["iou"] for summary in evaluation.summaries), strict=True)
    rows = [
        (name, [*map(_percent, row), *([str(spread or _NONE)] if several else [])])
        for name, row, spread in zip(evaluation.classes, values, evaluation.class_spreads(), strict=True)
    ]
    means = [_percent(summary["miou"]) for summary in evaluation.summaries]
    rows.append(("mean", [*means, *([str(evaluation.spread())] if several else [])]))
    columns = [*_steps(evaluation), *(["mean ± std"] if several else [])]
    return number_tables("class", columns, rows, width, total=True)


def metric_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """The other scores in percent: one row per class and one for the mean; the mean over checkpoints if several."""
    found = [scores.metrics() for scores in evaluation.scores.values()]

    def row(pick: Callable[[dict[str, Any]], float | None]) -> list[str]:
        columns = [[value for each in found if (value := pick(each[name])) is not None] for name in found[0]]
        return [_percent(float(np.mean(values)) if values else None) for values in columns]

    rows = [
        (name, row(lambda metric, place=place: metric["classes"][place]))  # type: ignore[misc]
        for place, name in enumerate(evaluation.classes)
    ]
    rows.append(("mean", row(lambda metric: metric["mean"])))
    corner = "class" if len(found) == 1 else "mean over checkpoints"
    return number_tables(corner, [METRICS[name] for name in found[0]], rows, width, total=True)


def confusion_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """What the pixels of each class were predicted as, in percent of them, over all checkpoints."""
    matrix = sum(scores.matrix for scores in evaluation.scores.values())
    rows = [
        (name, [_NONE if np.isnan(share) else f"{100 * share:.1f}" for share in shares])
        for name, shares in zip(evaluation.classes, shares_of_labels(np.asarray(matrix)), strict=True)
    ]
    return number_tables("label \\ prediction", evaluation.classes, rows, width)


def look_tables(evaluation: Evaluation, width: int) -> list[Table]:
    """The recall of each look's pixels, for data that have looks; else none."""
    recalls = [recall for summary in evaluation.summaries if (recall := summary.get("recall_per_look")) is not None]
    if not recalls:
        return []
    rows = [(key, [_percent(recall[key]) for recall in recalls]) for key in recalls[0]]
    return number_tables("recall per look", _steps(evaluation), rows, width)


def _steps(evaluation: Evaluation) -> list[str]:
    return [f"step {step}" for step in evaluation.scores]


def heading(evaluation: Evaluation) -> str:
    """One line with the dataset, the number of images and the settings."""
    settings = evaluation.settings
    passes = f", scales {', '.join(map(str, settings.scales))}" if settings.scales != (1.0,) else ""
    passes += ", flip" if settings.flip else ""
    skipped = max(len(scores.broken or ()) for scores in evaluation.scores.values())
    images = counted(evaluation.images, "image") + (f" ({skipped} of them skipped)" if skipped else "")
    return f"{evaluation.dataset}: {images}, tiling {settings.tiling}{passes}, IoU in %"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.2f}"
