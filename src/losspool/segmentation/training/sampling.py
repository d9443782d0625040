"""Crop sampling: uniform, or mixed with crops aimed at classes with a low IoU.

This is the paper's second contribution (Sec. 4, "Complimentary sampling strategy"). Every draw is a pure function of
the seed, its number, and the running IoU a fixed number of steps ago. Prefetching, the number of loader workers,
stopping and resuming, and the number of processes therefore do not change the draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.base import UserError
from losspool.segmentation.config import SamplingConfig
from losspool.segmentation.data import ClassIndex
from losspool.segmentation.prediction import iou

_INVERSE_FLOOR = 0.05


class Draw(NamedTuple):
    """One crop to make. It holds plain numbers, so that it can be sent to a loader worker."""

    image: int
    seed: int
    """Determines scale, position and flip."""
    label: int = -1
    """The class that the crop is aimed at, or -1."""
    row: int = -1
    column: int = -1

    @property
    def aim(self) -> tuple[int, int] | None:
        return None if self.label < 0 else (self.row, self.column)


class RunningIoU:
    """Per-class IoU of the training predictions, from an exponentially decaying confusion matrix."""

    def __init__(self, classes: int, decay: float, lag: int) -> None:
        self.step = 0
        """Number of steps observed."""
        self.matrix = np.zeros((classes, classes))
        self._decay = decay
        self._lag = lag
        self._history = {0: np.zeros(classes)}  # steps observed -> IoU then; the last `lag` and the current one

    def observe(self, counts: Tensor) -> None:
        """Add the (C, C) counts of one step, summed over ranks."""
        self.matrix = self.matrix * self._decay + counts.cpu().numpy()
        self.step += 1
        self._history[self.step] = np.nan_to_num(iou(self.matrix), nan=0.0)
        self._history.pop(self.step - self._lag - 1, None)

    def after(self, steps: int) -> NDArray[np.float64]:
        """(C,): the IoU after ``steps`` steps. A class that was never seen or predicted has IoU 0."""
        if steps > self.step:
            raise RuntimeError(f"the IoU after {steps} steps is not known yet: {self.step} are done")
        return self._history[max(steps, 0)]

    def state_dict(self) -> dict[str, Any]:
        steps = sorted(self._history)
        return {
            "step": self.step,
            "matrix": torch.from_numpy(self.matrix.copy()),
            "history_steps": torch.tensor(steps),
            "history": torch.from_numpy(np.stack([self._history[step] for step in steps])),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        self.matrix = state["matrix"].numpy().copy()
        self._history = dict(zip(state["history_steps"].tolist(), state["history"].numpy().copy(), strict=True))


class CropSampler:
    """Draws the crops of every step. All ranks draw the same crops, and each takes its own part."""

    def __init__(self, index: ClassIndex, settings: SamplingConfig, seed: int) -> None:
        self.settings = settings
        self.running = RunningIoU(index.pixels.shape[1], settings.decay, settings.lag)
        self._index = index
        self._seed = seed
        self._images = len(index.pixels)
        self._holders = [index.images_with(label) for label in range(index.pixels.shape[1])]
        self.present: NDArray[np.bool_] = np.array([len(images) > 0 for images in self._holders])
        if not self.present.any():
            raise UserError("no label image of the training data contains any class")
        self._shuffled: tuple[int, NDArray[np.intp]] = (-1, np.zeros(0, np.intp))

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """(C,): the probability that an aimed crop targets each class, given its IoU; 0 for classes not in the data."""
        weights = 1 / (scores + _INVERSE_FLOOR) if self.settings.preference == "inverse" else 1 - scores
        weights = np.where(self.present, weights, 0.0)
        if weights.sum() == 0:  # every class has IoU 1: prefer none
            weights = self.present.astype(float)
        return weights / max(weights.sum(), 1e-300)

    def step(self, step: int, count: int) -> list[Draw]:
        """The ``count`` draws of a step, numbered from ``step · count``."""
        likely = np.cumsum(self.probabilities(self.running.after(step - self.settings.lag)))
        return [self._draw(number, likely) for number in range(step * count, (step + 1) * count)]

    def _draw(self, number: int, likely: NDArray[np.float64]) -> Draw:
        random = _generator(self._seed, number)
        seed = int(random.integers(1 << 63))
        aimed, which, holder, place = random.random(4)
        if aimed >= self.settings.mix:
            return Draw(self._uniform(number), seed)
        label = int(np.searchsorted(likely[:-1], which * likely[-1], side="right"))
        image = int(_pick(self._holders[label], holder))
        row, column = _pick(self._index.positions_of(image, label), place)
        return Draw(image, seed, label, int(row), int(column))

    def _uniform(self, number: int) -> int:
        """Reshuffle the images every epoch. If no crop is aimed, each image is seen once per epoch."""
        epoch, place = divmod(number, self._images)
        if self._shuffled[0] != epoch:
            # Draw numbers stay below 2⁶³, so numbers above it are free for the epochs.
            self._shuffled = epoch, _generator(self._seed, (1 << 63) + epoch).permutation(self._images)
        return int(self._shuffled[1][place])


def _generator(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))


def _pick(items: NDArray[Any], chance: float) -> Any:
    return items[int(chance * len(items))]


class DrawStream:
    """A batch sampler for DataLoader: the micro-batches of this rank's draws, from step ``first`` on."""

    def __init__(
        self, sampler: CropSampler, *, batch: int, accumulate: int, rank: int, ranks: int, first: int, last: int
    ) -> None:
        self._sampler = sampler
        self._batch, self._accumulate = batch, accumulate
        self._rank, self._ranks = rank, ranks
        self._steps = range(first, last)

    def __len__(self) -> int:
        return len(self._steps) * self._accumulate

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in self._steps:
            draws = self._sampler.step(step, self._batch * self._accumulate * self._ranks)
            mine = draws[self._rank :: self._ranks]  # draw i goes to rank i mod k
            for first in range(0, len(mine), self._batch):
                yield mine[first : first + self._batch]
