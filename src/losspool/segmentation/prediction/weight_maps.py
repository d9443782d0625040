"""Weight maps: the weight that a run's loss gives to each pixel of a labelled image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.table import Table

from losspool.segmentation.base import check_trusted, number_tables
from losspool.segmentation.data import IGNORE, ClassIndex, ClassInfo, Pixels, WarnOnce, class_index
from losspool.segmentation.losses import Criterion, LossConfig, needs_index
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.prediction.trained_run import TrainedRun


@dataclass(frozen=True)
class WeightMap:
    """The loss weights of an image's pixels, with the statistics of the loss."""

    weights: NDArray[np.float32]
    """(H, W): the weight times the number of valid pixels, so that the plain mean has 1 everywhere; 0 where void."""
    label: Pixels
    prediction: Pixels
    """(H, W): the arg-max of the forward pass that the weights come from."""
    alpha: float | None
    """None for a loss that does not pool."""
    saturated: float | None
    """The share of valid pixels with the largest possible weight; None for a loss that does not pool."""

    @property
    def void(self) -> NDArray[np.bool_]:
        return self.label == IGNORE

    @property
    def top(self) -> float:
        """The top of the colour scale: the largest weight, but at least 2, which puts the plain mean in the middle."""
        return max(float(self.weights.max(initial=0)), 2.0)

    def shares(self, classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(C,) and (C,): each class's share of the valid pixels, and of the weight."""
        valid = ~self.void
        labels = self.label[valid]
        pixels = np.bincount(labels, minlength=classes)
        mass = np.bincount(labels, self.weights[valid], minlength=classes)
        return pixels / max(pixels.sum(), 1), mass / max(mass.sum(), np.finfo(np.float64).tiny)


class Weigher:
    """Computes the weight maps of a run's loss for whole images."""

    def __init__(self, loss: LossConfig, index: ClassIndex | None, predict: Predictor) -> None:
        """``index``: of the training data; None for losses without class frequencies. ``loss``: without schedules."""
        self._predict = predict
        # Pool each image by itself: with scope="global" the loss would wait for the other processes.
        self._criterion = Criterion(replace(loss, scope="image"), index).to(predict.device)

    @torch.no_grad()
    def __call__(self, image: Image.Image, label: Pixels, seed: int) -> WeightMap:
        """``seed`` is for losses that sample pixels."""
        labels = torch.from_numpy(label.copy())[None].to(self._predict.device)
        result = self._criterion(self._predict.logits(image), labels, [seed])
        valid = int((label != IGNORE).sum())
        weights = (result.weights[0].double() * valid).float().cpu().numpy()
        prediction = result.prediction[0].to(torch.uint8).cpu().numpy()
        if not self._criterion.pools:
            return WeightMap(weights, label, prediction, None, None)
        alpha, saturated = result.stats.alpha, result.stats.saturated
        return WeightMap(weights, label, prediction, alpha.item(), saturated.item() / max(valid, 1))

    def with_prediction(self, image: Image.Image, label: Pixels, seed: int) -> tuple[Pixels, WeightMap]:
        """The prediction and the weight map, from one forward pass if the predictor needs only one."""
        found = self(image, label, seed)
        return found.prediction if self._predict.single_pass else self._predict(image), found


def weigher_of(run: TrainedRun, predict: Predictor, step: int | None = None) -> Weigher:
    """The weigher of a trained run. Class frequencies come from its training split; schedules need the ``step``."""
    config = run.config
    for name in config.loss.weighted:
        check_trusted(run.folder.config, "loss", name, run.trusted)
    index = None
    if needs_index(config.loss):
        broken = WarnOnce() if config.data.skip_broken else None
        index = class_index(run.dataset(config.data.train), config.data.cache, broken)
    return Weigher(config.loss.at(step), index, predict)


def weight_summary(name: str, found: WeightMap) -> str:
    """One line with α, the saturated share, and the colour scale."""
    text = f"{name}: "
    if found.alpha is not None and found.saturated is not None:
        text += f"α = {found.alpha:.4g}, {100 * found.saturated:.2f} % of the pixels saturated, "
    return text + f"colours from 0 to {found.top:.3g} times the weight in a plain mean"


def weight_tables(found: WeightMap, classes: Sequence[ClassInfo], width: int) -> list[Table]:
    """One row per class in the image."""
    rows = [
        (info.name, [f"{100 * pixels:.2f}", f"{100 * mass:.2f}"])
        for info, pixels, mass in zip(classes, *found.shares(len(classes)), strict=True)
        if pixels > 0
    ]
    return number_tables("class", ["% of pixels", "% of weight"], rows, width)
