"""The gradients of several losses at the same weights on the same crops: how long, and how far from cross-entropy's.

A gradient that is only longer is a higher learning rate; one that points elsewhere is another weighting.
Crops are the middles of training images, in batches as in training, and BatchNorm works as in training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from losspool.segmentation.base import UserError
from losspool.segmentation.config import Config
from losspool.segmentation.data import Dataset
from losspool.segmentation.losses import LOSSES, Criterion, needs_index
from losspool.segmentation.prediction import Trained, TrainedRun

BASE = "cross_entropy"


def batches(config: Config, dataset: Dataset, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Middles of images spread over a split: (B, H, W, 3) and (B, H, W)."""
    height, width = config.data.crop
    places = np.linspace(0, len(dataset) - 1, count * config.train.batch).round().astype(int).reshape(count, -1)
    for part in places:
        images, labels = [], []
        for place in part:
            image, label = np.asarray(dataset.image(int(place))), dataset.label(int(place))
            if image.shape[0] < height or image.shape[1] < width:
                raise UserError(f"{dataset.name}: an image of {image.shape[:2]} is smaller than the crop")
            top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
            images.append(torch.from_numpy(image[top : top + height, left : left + width].copy()))
            labels.append(torch.from_numpy(label[top : top + height, left : left + width].copy()))
        yield torch.stack(images), torch.stack(labels)


def gradients(trained: Trained, names: Sequence[str], images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The gradient of each loss, as one vector."""
    module = trained.model.module.train()
    logits = module(trained.model.spec.preprocessing.apply(images))
    weights, found = [each for each in module.parameters() if each.requires_grad], {}
    for name in names:
        criterion = Criterion(replace(trained.config.loss, name=name, terms={}), stride=trained.model.spec.logit_stride)
        loss = criterion(logits, labels, range(len(labels)), trained.step).loss
        parts = torch.autograd.grad(loss, weights, retain_graph=True)
        found[name] = torch.cat([part.flatten() for part in parts]).double()
    return found


def compare(found: dict[str, Tensor]) -> dict[str, tuple[float, float]]:
    """The length of each gradient relative to cross-entropy's, and the cosine of the angle between them."""
    base = found[BASE]
    return {
        name: (float(each.norm() / base.norm()), float(each @ base / (each.norm() * base.norm())))
        for name, each in found.items()
    }


def table(compared: Sequence[dict[str, tuple[float, float]]]) -> str:
    """Markdown: medians over the batches, with the smallest and the largest."""
    rows = ["| loss | length, relative to `cross_entropy` | cosine with it |", "|---|---:|---:|"]
    for name in compared[0]:
        values = np.array([each[name] for each in compared])
        cells = [f"{np.median(column):.2f} ({column.min():.2f}–{column.max():.2f})" for column in values.T]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--checkpoint", default="last", help="a step, last or best (default: last)")
    parser.add_argument("--loss", action="append", required=True, help="may be repeated")
    parser.add_argument("--batches", type=int, default=10)
    options = parser.parse_args(arguments)
    try:
        names = list(dict.fromkeys([BASE, *options.loss]))
        run = TrainedRun.open(options.run)
        for name in names:
            if name not in LOSSES or needs_index(replace(run.config.loss, name=name, terms={})):
                raise UserError(f"--loss must be a loss without class frequencies, got {name!r}")
        trained = run.load_one(options.checkpoint)
        dataset = run.dataset(trained.config.data.train, trained.classes)
        found = [
            compare(gradients(trained, names, *each)) for each in batches(trained.config, dataset, options.batches)
        ]
        print(f"step {trained.step}, {options.batches} batches of {trained.config.train.batch}")
        print(table(found))
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
