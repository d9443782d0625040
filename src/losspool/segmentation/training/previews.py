"""Fixed images through training: what the network says of them, and where its loss looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from losspool.segmentation.base import BrokenFileError, in_threads, replacing, write_json
from losspool.segmentation.data import Dataset, Pixels, Skip, try_pair
from losspool.segmentation.prediction import Weigher, palette_image, save_png

WEIGHT_UNIT = 25.5
"""Grey levels per unit of weight·n in the weight maps: the plain mean's weight is 1, white is 10 and more."""


class Previews:
    """``count`` images spread over a split, under numbers: names from outside are no file names here.

    One that is ``broken`` and may be skipped has no pictures.
    """

    def __init__(self, folder: Path, dataset: Dataset, count: int, broken: Skip | None = None) -> None:
        self._folder, self._dataset, self._broken = folder, dataset, broken
        places = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().astype(int)
        self._indices = sorted(set(places.tolist()))

    def write_sources(self, watch: Callable[[], None] = lambda: None) -> None:
        """The images, their labels, and which image each number stands for.

        ``watch`` is called while an image is waited for, and may raise to stop.
        """
        for number, _, image, label in self._pairs(watch):
            save_png(image, self._folder / f"{number:02d}-image.png")
            save_png(palette_image(label.copy(), self._dataset.classes), self._folder / f"{number:02d}-label.png")
        with replacing(self._folder / "names.json") as partial:
            names = [self._dataset.names[index] for index in self._indices]
            write_json(partial, json.dumps(names, ensure_ascii=False, indent=1))

    def write(self, step: int, weigh: Weigher, watch: Callable[[], None] = lambda: None) -> None:
        """What the network says of each image at this step, and where its loss looks. ``watch`` is as above."""
        for number, index, image, label in self._pairs(watch):
            stem = self._folder / f"{number:02d}-step-{step:07d}"
            prediction, found = weigh.with_prediction(image, label, index)
            save_png(palette_image(prediction, self._dataset.classes), stem.with_name(f"{stem.name}.png"))
            grey = (found.weights * WEIGHT_UNIT).round().clip(max=255).astype(np.uint8)
            save_png(Image.fromarray(grey), stem.with_name(f"{stem.name}-weights.png"))

    def _pairs(self, watch: Callable[[], None]) -> Iterator[tuple[int, int, Image.Image, Pixels]]:
        """Number, index, image and label."""
        pairs = in_threads(partial(try_pair, self._dataset), self._indices, ahead=1, watch=watch)
        for number, (index, pair) in enumerate(zip(self._indices, pairs, strict=True)):
            if isinstance(pair, BrokenFileError):
                if self._broken is None:
                    raise pair
                self._broken(pair)
                continue
            yield number, index, *pair
