"""The page's data, as JSON: scores from ``Statistics``, series from metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from losspool.lab.comparison import (
    VALIDATION,
    Comparison,
    Difference,
    Interval,
    Run,
    Statistics,
    Variant,
    format_setting,
)
from losspool.lab.figures import synthetic_losses
from losspool.lab.report.pictures import PreviewData, preview_data
from losspool.lab.tables import answer
from losspool.segmentation.prediction import METRICS, Spread, void_color

POINTS = 1000
"""The most points of a series over training. Cityscapes' 165,000 steps are 16,500 lines."""
CLASS_POINTS = 150
"""The same for a series with a number per class."""
NUMBERS = 32_000
"""The most numbers of all series over training, which the runs share: about 250 kB."""

Item = TypeVar("Item")
Number = float | None


class SpreadData(TypedDict):
    """See :class:`losspool.segmentation.prediction.Spread`."""

    mean: float
    std: Number


class GainData(TypedDict):
    """See :class:`losspool.lab.comparison.Difference`."""

    mean: float
    low: Number
    high: Number
    pairs: int


class IntervalData(TypedDict):
    """See :class:`losspool.lab.comparison.Interval`."""

    low: float
    high: float


class ClassData(TypedDict):
    name: str
    color: str
    """#rrggbb, as in the pictures."""
    pixels: int
    """In the scored images."""


class CurveData(TypedDict):
    steps: list[int]
    values: list[Number]


class VariantData(TypedDict):
    label: str
    baseline: bool
    seeds: list[int]
    runs: list[int]
    """Indices into the page's list of runs."""
    score: SpreadData
    spread_over: str | None
    """``seeds`` or ``checkpoints``; None with one of each."""
    gain: GainData | None
    """None for the baseline, and where no seed is shared with it."""
    over_images: IntervalData | None
    """Of the gain; None unless the same images were counted one by one."""
    over_both: IntervalData | None
    """Of the gain, over seeds and images together; None unless there is an interval over each."""
    no_images: str | None
    """Why there is no interval over images; None if there is one, and for the baseline."""
    first_step: int | None
    """The first validation that reaches the baseline's last one."""
    class_scores: list[SpreadData | None]
    class_gains: list[GainData | None]
    miou: CurveData
    """Of validation, mean over seeds."""
    loss: CurveData
    """Of training, mean over seeds."""
    recall: dict[str, Number]
    """Per look; empty where the scores have none."""
    metrics: dict[str, list[SpreadData | None]]
    """Scores other than the IoU by key: of each class, then their mean; empty unless single images were counted."""
    confusion: list[list[Number]] | None
    """Shares of the label's pixels: a row per label, a column per prediction."""


class TrainData(TypedDict):
    """Lines of training, thinned to at most ``POINTS``."""

    steps: list[int]
    loss: list[Number]
    alpha: list[Number]
    saturated: list[Number]


class ClassSeries(TypedDict):
    """Lines of training, thinned to at most ``CLASS_POINTS``; a list over the steps for each class."""

    steps: list[int]
    iou: list[list[Number]]
    probabilities: list[list[Number]]
    mass: list[list[Number]]


class RunData(TypedDict):
    name: str
    variant: int
    seed: int
    commit: str
    machine: str
    torch: str
    status: str
    mix: float
    """The share of crops that the sampler aims at a class; 0 is uniform."""
    miou: CurveData
    train: TrainData
    classes: ClassSeries


class MetricData(TypedDict):
    key: str
    name: str


class DifferenceData(TypedDict):
    setting: str
    values: list[str]
    """Of each variant."""


class PageData(TypedDict):
    title: str
    answer: str
    """What the comparison found, in a sentence."""
    dataset: str
    recipes: list[str]
    model: list[str]
    source: str
    """``validation`` or the beginning of an evaluation's name."""
    images: str | None
    """The pattern of the scored images' names; None for all."""
    steps: list[int]
    """The checkpoints whose mean is a run's score."""
    level: Number
    """The baseline's last validation, which ``first_step`` refers to."""
    classes: list[ClassData]
    variants: list[VariantData]
    runs: list[RunData]
    failures: list[str]
    """Runs without a score, see :class:`losspool.lab.comparison.Comparison`."""
    differences: list[DifferenceData]
    looks: list[str]
    metrics: list[MetricData]
    """Those that any variant has."""
    void: str
    """The colour of void in the pictures."""
    previews: PreviewData
    losses: list[float]
    """The synthetic losses of Fig. 2."""


def page_data(statistics: Statistics, room: int) -> PageData:
    """Everything that the page shows, in about ``room`` bytes: what the rest leaves is for pictures."""
    comparison = statistics.comparison
    runs = [run for variant in comparison.variants for run in variant.runs]
    configs = [run.config for run in runs]
    level = next(reversed(statistics.curve(comparison.baseline).values()), None)
    detail = _Detail.of(len(runs), len(comparison.variants), len(comparison.classes))
    variants = [_variant(statistics, variant, runs, level, detail.points) for variant in comparison.variants]
    data, void = configs[0].data, void_color(runs[0].classes)
    page: PageData = {
        "title": _title(data.title, [variant["label"] for variant in variants]),
        "answer": answer(statistics),
        "dataset": f"{data.title}/{data.val}" if comparison.source == VALIDATION else data.title,
        "recipes": _distinct(config.recipe for config in configs),
        "model": _distinct(config.model.name for config in configs),
        "source": comparison.source,
        "images": comparison.selection.images,
        "steps": list(comparison.steps),
        "level": level,
        "classes": [
            {"name": info.name, "color": "#{:02x}{:02x}{:02x}".format(*info.color), "pixels": int(pixels)}
            for info, pixels in zip(comparison.classes, comparison.pixels, strict=True)
        ],
        "variants": variants,
        "runs": [_run(run, comparison, detail) for run in runs],
        "failures": list(comparison.failures),
        "differences": [
            {"setting": key, "values": [format_setting(value) for value in values]}
            for key, values in comparison.differences().items()
        ],
        "looks": _distinct(look for variant in variants for look in variant["recall"]),
        "metrics": [
            {"key": key, "name": name}
            for key, name in METRICS.items()
            if any(key in variant["metrics"] for variant in variants)
        ],
        "void": "#{:02x}{:02x}{:02x}".format(*void),
        "previews": preview_data([], void, 0),
        "losses": synthetic_losses().tolist(),
    }
    # The baseline, then the best: with many variants these are the ones whose pictures there is room for.
    others = sorted(comparison.others, key=lambda variant: -statistics.score(variant).mean)
    shown = [variant.runs[0] for variant in (comparison.baseline, *others)]
    left = room - len(json.dumps(page))
    page["previews"] = preview_data([(runs.index(run), run.folder.previews) for run in shown], void, left)
    return page


def _title(dataset: str, labels: Sequence[str]) -> str:
    if len(labels) > 3:
        return f"{dataset}: {len(labels)} variants"
    *first, last = labels
    return f"{dataset}: {', '.join(first)} and {last}" if first else f"{dataset}: {last}"


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """Every k-th item, counted from the end: evenly spaced, and the last is always kept."""
    every = max(math.ceil(len(items) / most), 1)
    return list(items[::-1][::every][::-1])


class _Detail(NamedTuple):
    """How many points the series over training have."""

    points: int
    class_points: int

    @classmethod
    def of(cls, runs: int, variants: int, classes: int) -> _Detail:
        """A quarter of ``NUMBERS`` for the loss and the pooling, the rest for series with a number per class."""
        points = NUMBERS // 4 // (4 * runs + 2 * variants)
        class_points = NUMBERS * 3 // 4 // (runs * (3 * classes + 1))
        return cls(max(min(points, POINTS), 2), max(min(class_points, CLASS_POINTS), 2))


def _variant(statistics: Statistics, variant: Variant, runs: Sequence[Run], level: Number, points: int) -> VariantData:
    comparison = statistics.comparison
    baseline = variant is comparison.baseline
    score = statistics.score(variant)
    over = "seeds" if len(variant.runs) > 1 else "checkpoints"
    curve, shares = statistics.curve(variant), statistics.confusion(variant)
    images = None if baseline else statistics.image_intervals(variant)
    return {
        "label": variant.label,
        "baseline": baseline,
        "seeds": [run.seed for run in variant.runs],
        "runs": [runs.index(run) for run in variant.runs],
        "score": _spread(score),
        "spread_over": None if score.std is None else over,
        "gain": None if baseline else _gain(statistics.gain(variant)),
        "over_images": _interval(images.miou) if images else None,
        "over_both": _interval(images.joint) if images and images.joint else None,
        "no_images": None if baseline else statistics.no_image_intervals(variant),
        "first_step": None if level is None else statistics.first_step_at(variant, level),
        "class_scores": [None if each is None else _spread(each) for each in statistics.class_scores(variant)],
        "class_gains": [] if baseline else [_gain(each) for each in statistics.class_gains(variant)],
        "miou": {"steps": list(curve), "values": list(curve.values())},
        "loss": _mean_loss(variant, points),
        "recall": dict(statistics.recall(variant)),
        "metrics": {
            key: [None if each is None else _spread(each) for each in scores]
            for key, scores in statistics.metrics(variant).items()
        },
        "confusion": None if shares is None else [[_short(share) for share in row] for row in shares.tolist()],
    }


def _run(run: Run, comparison: Comparison, detail: _Detail) -> RunData:
    lines = thinned(run.train, detail.points)
    few = thinned(run.train, detail.class_points)
    about = run.description
    place = next(index for index, variant in enumerate(comparison.variants) if run in variant.runs)
    return {
        "name": run.name,
        "variant": place,
        "seed": run.seed,
        "commit": _text(about.get("commit")),
        "machine": ", ".join(_text(about[key]) for key in ("machine", "device") if about.get(key)) or "unknown",
        "torch": _text(about.get("torch")),
        "status": _text(about.get("status")),
        "mix": run.config.sampling.mix,
        "miou": {"steps": list(run.validations), "values": [line["miou"] for line in run.validations.values()]},
        "train": {
            "steps": [line["step"] for line in lines],
            "loss": [_short(line.get("loss")) for line in lines],
            "alpha": [_short(line.get("alpha")) for line in lines],
            "saturated": [_short(line.get("saturated")) for line in lines],
        },
        "classes": {
            "steps": [line["step"] for line in few],
            "iou": _by_class(few, "iou", len(run.classes)),
            "probabilities": _by_class(few, "probabilities", len(run.classes)),
            "mass": _by_class(few, "mass", len(run.classes)),
        },
    }


def _mean_loss(variant: Variant, points: int) -> CurveData:
    """Mean over seeds, at the steps that all seeds have."""
    runs: list[dict[int, float | None]] = [
        {line["step"]: line.get("loss") for line in run.train} for run in variant.runs
    ]
    steps = thinned(sorted(set.intersection(*(set(run) for run in runs))), points)
    columns = [[math.nan if (loss := run[step]) is None else loss for run in runs] for step in steps]
    return {"steps": steps, "values": [_short(float(np.mean(column))) for column in columns]}


def _by_class(lines: Sequence[dict[str, Any]], key: str, classes: int) -> list[list[Number]]:
    rows = [line.get(key) or [None] * classes for line in lines]
    return [[_short(row[index]) for row in rows] for index in range(classes)]


def _short(value: Number) -> Number:
    """Five digits: more than a line on a screen shows, and a third of the bytes."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _spread(spread: Spread) -> SpreadData:
    return {"mean": spread.mean, "std": spread.std}


def _interval(interval: Interval) -> IntervalData:
    return {"low": interval.low, "high": interval.high}


def _gain(gain: Difference | None) -> GainData | None:
    if gain is None:
        return None
    low, high = (gain.interval.low, gain.interval.high) if gain.interval else (None, None)
    return {"mean": gain.mean, "low": low, "high": high, "pairs": gain.pairs}


def _text(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
