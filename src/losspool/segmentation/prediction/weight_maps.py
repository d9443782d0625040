"""Where the loss looks: the weight that a run's loss gives to every pixel of an image with a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.table import Table
from rich.text import Text
from torch import Tensor

from losspool.segmentation.base import check_trusted, plain
from losspool.segmentation.data import IGNORE, ClassInfo, Pixels, WarnOnce, class_index
from losspool.segmentation.losses import Criterion, LossConfig, loss_named
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.prediction.trained_run import TrainedRun


@dataclass(frozen=True)
class WeightMap:
    """The weights of an image's pixels, and what is to be said about them."""

    weights: NDArray[np.float32]
    """(H, W): the weight times the number of valid pixels, so that in the plain mean it is 1; 0 where void."""
    label: Pixels
    prediction: Pixels
    """(H, W): the arg-max of the pass through the network that the weights come from."""
    alpha: float | None
    """None for a loss that does not pool."""
    saturated: float | None
    """The share of the valid pixels that have the largest weight there can be; None for a loss that does not pool."""

    @property
    def void(self) -> NDArray[np.bool_]:
        return self.label == IGNORE

    @property
    def top(self) -> float:
        """The end of the colour scale: the largest weight, at least 2, so that the plain mean is in the middle."""
        return max(float(self.weights.max(initial=0)), 2.0)

    def shares(self, classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(C,) each: the classes' shares of the valid pixels, and of the weight."""
        valid = ~self.void
        labels = self.label[valid]
        pixels = np.bincount(labels, minlength=classes)
        mass = np.bincount(labels, self.weights[valid], minlength=classes)
        return pixels / max(pixels.sum(), 1), mass / max(mass.sum(), np.finfo(np.float64).tiny)


class Weigher:
    """A run's loss on whole images."""

    def __init__(self, loss: LossConfig, weights: NDArray[np.float64] | None, predict: Predictor) -> None:
        """``weights`` are the classes', of the losses that have them."""
        self._predict = predict
        # An image by itself: a loss that pools over processes would wait for the others.
        self._criterion = Criterion(replace(loss, scope="image"), weights).to(predict.device)

    @torch.no_grad()
    def __call__(self, image: Image.Image, label: Pixels, seed: int) -> WeightMap:
        """``seed`` decides which pixels a loss takes that draws them."""
        labels = torch.from_numpy(label.copy())[None].to(self._predict.device)
        result = self._criterion(self._predict.logits(image), labels, [seed])
        valid = int((label != IGNORE).sum())
        weights = (result.weights[0].double() * valid).float().cpu().numpy()
        prediction = result.prediction[0].to(torch.uint8).cpu().numpy()
        if not self._criterion.pools:
            return WeightMap(weights, label, prediction, None, None)
        alpha, saturated = cast(Tensor, result.stats.alpha), cast(Tensor, result.stats.saturated)
        return WeightMap(weights, label, prediction, alpha.item(), saturated.item() / max(valid, 1))

    def with_prediction(self, image: Image.Image, label: Pixels, seed: int) -> tuple[Pixels, WeightMap]:
        """What the predictor says of the image, and the weights: by one pass where the predictor takes one."""
        found = self(image, label, seed)
        return found.prediction if self._predict.single_pass else self._predict(image), found


def weigher_of(run: TrainedRun, predict: Predictor) -> Weigher:
    """Of a trained run: class weights are computed from its training split again."""
    config = run.config
    check_trusted(run.folder.config, "loss", config.loss.name, run.trusted)
    rule, weights = loss_named(config.loss.name).class_weights, None
    if rule is not None:
        cache = Path(config.data.cache) if config.data.cache else None
        broken = WarnOnce() if config.data.skip_broken else None
        weights = rule(class_index(run.dataset(config.data.train), cache, broken))
    return Weigher(config.loss, weights, predict)


def weight_words(name: str, found: WeightMap) -> str:
    """α, the saturated share, and what the colours mean."""
    words = f"{name}: "
    if found.alpha is not None and found.saturated is not None:
        words += f"α = {found.alpha:.4g}, {100 * found.saturated:.2f} % of the pixels saturated, "
    return words + f"colours from 0 to {found.top:.3g} times the weight in a plain mean"


def weight_table(found: WeightMap, classes: Sequence[ClassInfo]) -> Table:
    """A row per class that the image holds."""
    table = Table(box=None, pad_edge=False)
    table.add_column("class", no_wrap=True)
    for header in ("% of pixels", "% of weight"):
        table.add_column(header, justify="right", no_wrap=True)
    for info, pixels, mass in zip(classes, *found.shares(len(classes)), strict=True):
        if pixels > 0:
            table.add_row(Text(plain(info.name)), f"{100 * pixels:.2f}", f"{100 * mass:.2f}")
    return table
