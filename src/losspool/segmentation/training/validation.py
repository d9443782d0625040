"""Validation during training. Every rank scores its part of the images, and rank 0 writes the previews."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from losspool.segmentation.base import BrokenFileError, in_threads, replacing, write_json
from losspool.segmentation.config import Config
from losspool.segmentation.data import ClassIndex, Dataset, Pixels, Skip, WarnOnce, try_pair
from losspool.segmentation.models import Model
from losspool.segmentation.prediction import WEIGHT_UNIT, Predictor, Scores, Weigher, palette_image, save_png, score
from losspool.segmentation.training.processes import joined


@dataclass(frozen=True)
class Validation:
    """Everything a validation needs. Each call runs one validation."""

    fabric: Fabric
    config: Config
    model: Model
    data: Dataset
    previews: Previews
    index: ClassIndex
    warn: WarnOnce

    def __call__(self, step: int, watch: Callable[[], None]) -> dict[str, Any]:
        """The scores over all ranks, as written to metrics.jsonl. ``watch`` may raise to stop."""
        module = self.model.module.eval()
        if self.fabric.world_size > 1:
            # Each rank has its own BatchNorm statistics; the checkpoint holds those of rank 0.
            for buffer in module.buffers():
                torch.distributed.broadcast(buffer, 0)
        predict = Predictor(
            module,
            self.model.spec.preprocessing,
            stride=self.model.spec.logit_stride,
            zoom=self.config.data.zoom,
            config=self.config.evaluate,
            device=self.fabric.device,
        )
        mine = range(self.fabric.global_rank, len(self.data), self.fabric.world_size)
        scores = score(predict, self.data, mine, watch, self.config.data.skip_broken)
        if self.fabric.global_rank == 0:
            self.previews.write(step, Weigher(self.config.loss.at(step), self.index, predict), watch)
        module.train()
        broken = None if scores.broken is None else joined(self.fabric, scores.broken)
        self.warn(*broken or ())
        looks = scores.looks and replace(scores.looks, counts=self._total(scores.looks.counts))
        return Scores(self._total(scores.matrix), looks, broken).summary()

    def _total(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum over ranks."""
        reduced = self.fabric.all_reduce(torch.from_numpy(part).to(self.fabric.device), reduce_op="sum")
        return cast(Tensor, reduced).cpu().numpy()


class Previews:
    """Previews of ``count`` images spread over a split. Files are numbered, because image names are untrusted.

    With ``broken``, a broken image is reported to it and gets no previews; without it, it is an error. A ``resumed``
    run keeps the images that it has, and their numbers, if their count changes.
    """

    def __init__(
        self, folder: Path, dataset: Dataset, count: int, broken: Skip | None = None, *, resumed: bool = False
    ) -> None:
        self._folder, self._dataset, self._broken = folder, dataset, broken
        places = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().astype(int)
        self._written = self._read_names() if resumed else []
        known = {name: index for index, name in enumerate(dataset.names)}
        kept = [known[name] for name in self._written] if known.keys() >= set(self._written) else []
        self._indices = [*kept, *sorted(set(places.tolist()) - set(kept))][:count]

    def _read_names(self) -> list[str]:
        try:
            names = json.loads((self._folder / "names.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []

    def write_sources(self, watch: Callable[[], None] = lambda: None) -> None:
        """Write the images, their labels, and names.json, which maps each number to an image, unless they are there.

        ``watch`` is called while waiting for an image, and may raise to stop.
        """
        names = [self._dataset.names[index] for index in self._indices]
        if names == self._written[: len(names)] and self._written:
            return
        for number, _, image, label in self._pairs(watch):
            save_png(image, self._folder / f"{number:02d}-image.png")
            save_png(palette_image(label.copy(), self._dataset.classes), self._folder / f"{number:02d}-label.png")
        with replacing(self._folder / "names.json") as partial:
            write_json(partial, json.dumps(names, ensure_ascii=False, indent=1))

    def write(self, step: int, weigh: Weigher, watch: Callable[[], None] = lambda: None) -> None:
        """Write the prediction and the weight map of each image at this step. ``watch`` is as above."""
        for number, index, image, label in self._pairs(watch):
            stem = self._folder / f"{number:02d}-step-{step:07d}"
            prediction, found = weigh.with_prediction(image, label, index)
            save_png(palette_image(prediction, self._dataset.classes), stem.with_name(f"{stem.name}.png"))
            grey = (found.weights * WEIGHT_UNIT).round().clip(max=255).astype(np.uint8)
            save_png(Image.fromarray(grey), stem.with_name(f"{stem.name}-weights.png"))

    def files(self, step: int) -> dict[str, Path]:
        """The files of a step by names for trackers: ``previews/00`` and ``weights/00``."""
        found = {}
        for number in range(len(self._indices)):
            stem = f"{number:02d}-step-{step:07d}"
            for name, file in (("previews", f"{stem}.png"), ("weights", f"{stem}-weights.png")):
                found[f"{name}/{number:02d}"] = self._folder / file
        return {name: path for name, path in found.items() if path.exists()}  # a broken image has none

    def _pairs(self, watch: Callable[[], None]) -> Iterator[tuple[int, int, Image.Image, Pixels]]:
        """Yield number, index, image and label."""
        pairs = in_threads(partial(try_pair, self._dataset), self._indices, ahead=1, watch=watch)
        for number, (index, pair) in enumerate(zip(self._indices, pairs, strict=True)):
            if isinstance(pair, BrokenFileError):
                if self._broken is None:
                    raise pair
                self._broken(pair)
                continue
            yield number, index, *pair
