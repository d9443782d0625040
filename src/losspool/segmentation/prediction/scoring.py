"""Compares predictions with labels: counts over a split, and scores computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError, in_threads
from losspool.segmentation.data import Dataset, HasLooks, Pixels, try_pair
from losspool.segmentation.prediction.metrics import (
    class_counts,
    class_metrics,
    confusion,
    iou,
    mean_iou,
    mean_of_present,
    none_if_nan,
)
from losspool.segmentation.prediction.regions import REGIONS


@dataclass
class LookCounts:
    """Pixels of each look, for datasets that have looks."""

    names: Sequence[str]
    counts: NDArray[np.int64]
    """(L, 2): correct pixels and all pixels."""

    @classmethod
    def of(cls, dataset: Dataset) -> LookCounts | None:
        """No pixels yet; None if the dataset has no looks."""
        names = dataset.look_names if isinstance(dataset, HasLooks) else ()
        return cls(names, np.zeros((len(names), 2), np.int64)) if names else None

    def add(self, prediction: Pixels, label: Pixels, looks: Pixels) -> None:
        """Count an image. ``looks`` is (H, W), see :meth:`HasLooks.looks`."""
        parts = looks[prediction == label], looks.ravel()
        self.counts += np.stack([np.bincount(part, minlength=len(self.names) + 1) for part in parts], axis=1)[1:]

    def summary(self) -> dict[str, float | None]:
        """The recall of each look; None if it has no pixels."""
        counts = zip(self.names, self.counts.tolist(), strict=True)
        return {name: (hits / pixels if pixels else None) for name, (hits, pixels) in counts}


@dataclass
class Scores:
    """Counts over a split. The counts of disjoint parts add up."""

    matrix: NDArray[np.int64]
    """(C, C): row = label, column = prediction."""
    looks: LookCounts | None = None
    """None if the dataset has no looks."""
    broken: list[BrokenFileError] | None = None
    """Errors of the images that were skipped; None if a broken image is an error."""
    per_image: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """(3, C) per image name, see :func:`class_counts`. The IoU of any subset of images can be computed from these."""
    regions: dict[str, dict[str, NDArray[np.int64]]] = field(default_factory=dict)
    """The same in each of ``REGIONS``, by its name and the image's; empty unless asked for."""

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The scores of :func:`class_metrics`: of each class (None if it does not occur), and their mean."""
        regions = {region: np.stack(list(counts.values())) for region, counts in self.regions.items()}
        scores = class_metrics(np.stack(list(self.per_image.values())), regions)
        return {
            name: {"mean": none_if_nan(mean_of_present(found)), "classes": [*map(none_if_nan, found)]}
            for name, found in scores.items()
        }

    def summary(self) -> dict[str, Any]:
        """The entries in metrics.jsonl: mIoU, IoU per class (None if it does not occur), and pixels per class."""
        if not self.matrix.any():
            raise UserError("no pixel of the split has a label, so there is nothing to score")
        found: dict[str, Any] = {
            "miou": mean_iou(self.matrix),
            "iou": [*map(none_if_nan, iou(self.matrix))],
            "pixels": self.matrix.sum(1).tolist(),
        }
        if self.broken is not None:
            found["skipped"] = len(self.broken)
        if self.looks is not None:
            found["recall_per_look"] = self.looks.summary()
        return found


def score(
    predict: Callable[[Image.Image], Pixels],
    dataset: Dataset,
    indices: Iterable[int],
    watch: Callable[[], None],
    skip_broken: bool = False,
    *,
    regions: bool = False,
    done: Callable[[], None] = lambda: None,
) -> Scores:
    """Predict the images at ``indices`` and count; with ``regions`` also near outlines and inside.

    ``watch`` is called before each image and regularly while waiting for it; it may raise to stop. ``done`` is called
    after each image.
    """
    classes = len(dataset.classes)
    scores = Scores(np.zeros((classes, classes), np.int64), LookCounts.of(dataset), [] if skip_broken else None)

    def read(index: int) -> tuple[str, Image.Image, Pixels, Pixels | None] | BrokenFileError:
        pair = try_pair(dataset, index)
        if isinstance(pair, BrokenFileError):
            return pair
        # Read the looks now: once a generated scene has left the cache, they would need it to be drawn again.
        return dataset.names[index], *pair, dataset.looks(index) if isinstance(dataset, HasLooks) else None

    for each in in_threads(read, indices, ahead=2, watch=watch):
        watch()
        if isinstance(each, BrokenFileError):
            if scores.broken is None:
                raise each
            scores.broken.append(each)
            done()
            continue
        name, image, label, looks = each
        prediction = predict(image)
        matrix = confusion(torch.from_numpy(prediction), torch.from_numpy(label.copy()), classes).numpy()
        scores.matrix += matrix
        scores.per_image[name] = class_counts(matrix)
        for region, counts in REGIONS.items() if regions else ():
            scores.regions.setdefault(region, {})[name] = counts(prediction, label, classes)
        if scores.looks is not None and looks is not None:
            scores.looks.add(prediction, label, looks)
        done()
    return scores
