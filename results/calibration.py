"""How far the probabilities of runs can be trusted: the expected calibration error on test, and with one temperature.

The error is the mean over pixels of |accuracy - confidence| in 15 bins of equal width (Guo et al., ICML 2017). The
temperature divides all logits; it is fitted on val, where it minimises the cross-entropy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from losspool.segmentation.base import UserError, read_json, replacing, write_json
from losspool.segmentation.config import EvaluateConfig
from losspool.segmentation.data import IGNORE
from losspool.segmentation.prediction import Trained, TrainedRun

BINS = 15
EVERY = 7
"""One pixel in this many is used: neighbours are alike, and the logits of a split would not fit into memory. Coprime
to the usual widths, so that the pixels are not those of a few columns."""
FILE = "calibration.json"


@dataclass
class Reliability:
    """Counts of pixels by confidence. Those of disjoint parts add up."""

    pixels: Tensor
    hits: Tensor
    confidence: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, temperature: float = 1.0) -> Reliability:
        """From logits (N, C) and labels (N,)."""
        confidence, guess = (logits.double() / temperature).softmax(1).max(1)
        place = (confidence * BINS).long().clamp(max=BINS - 1)
        values = torch.ones_like(confidence), (guess == labels).double(), confidence
        return cls(*(torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, each) for each in values))

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(self.pixels + other.pixels, self.hits + other.hits, self.confidence + other.confidence)

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return float((self.hits - self.confidence).abs().sum() / self.pixels.sum())


def pixels_of(trained: Trained, run: TrainedRun, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (N, C) and labels (N,) of the used pixels of each image."""
    predictor, dataset = trained.predictor(EvaluateConfig()), run.dataset(split, trained.classes)
    for index in range(len(dataset)):
        labels = torch.from_numpy(dataset.label(index).copy()).flatten()[::EVERY].long()
        logits = predictor.logits(dataset.image(index))[0].flatten(1).T[::EVERY].cpu()  # (C, H, W) -> (N, C)
        valid = labels != IGNORE
        yield logits[valid], labels[valid]


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the least cross-entropy. It is searched by its logarithm, from 1/10 to 10."""

    def entropy(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / float(np.exp(log_temperature)), labels))

    return float(np.exp(minimize_scalar(entropy, bounds=(-2.303, 2.303), method="bounded").x))


def calibrate(path: Path, trusted: Sequence[str] = ()) -> dict[str, float]:
    """Measure one run and write ``calibration.json`` to its folder."""
    run = TrainedRun.open(path, trusted)
    trained = run.load_one("last")
    val = [torch.cat(parts) for parts in zip(*pixels_of(trained, run, "val"), strict=True)]
    temperature = fitted_temperature(*val)
    before = after = Reliability.of(val[0][:0], val[1][:0])
    for logits, labels in pixels_of(trained, run, "test"):
        before += Reliability.of(logits, labels)
        after += Reliability.of(logits, labels, temperature)
    found = {"step": trained.step, "error": before.error, "temperature": temperature, "error_scaled": after.error}
    with replacing(run.folder.path / FILE) as partial:
        write_json(partial, json.dumps(found))
    return found


def stored(path: Path) -> dict[str, float]:
    """What ``calibrate`` found for a run, whose checkpoints need not be there any more."""
    found: dict[str, float] = read_json(path / FILE)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, with their checkpoints")
    parser.add_argument("--stored", action="store_true", help=f"print what {FILE} holds, without measuring again")
    parser.add_argument("--trust", action="append", default=[], help="import path of a network to load")
    options = parser.parse_args(arguments)
    print("| run | error in % | temperature | error with it in % |\n|---|---:|---:|---:|")
    try:
        for path in options.runs:
            found = stored(path) if options.stored else calibrate(path, options.trust)
            errors = [100 * found[key] for key in ("error", "error_scaled")]
            print(f"| {path.name} | {errors[0]:.2f} | {found['temperature']:.2f} | {errors[1]:.2f} |", flush=True)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
