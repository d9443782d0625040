"""Reads the previews of two runs that Fig. 4 shows side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from losspool.lab.comparison import Run, evenly, image_names, predicted_steps, read_palette, read_picture
from losspool.segmentation.base import UserError
from losspool.segmentation.data import Pixels
from losspool.segmentation.prediction import void_color

MOST_IMAGES, MOST_STEPS = 2, 8


@dataclass(frozen=True)
class Picture:
    """Labels as the trainer drew them."""

    colors: Pixels
    """(H, W, 3)"""
    present: frozenset[int]
    """The labels that occur."""


@dataclass(frozen=True)
class Scene:
    """One image through the training of two runs."""

    name: str
    image: Pixels
    """(H, W, 3)"""
    label: Picture
    rows: tuple[tuple[Picture, ...], ...]
    """By run, then by step."""

    @property
    def present(self) -> frozenset[int]:
        """The labels that occur in any of the pictures."""
        return self.label.present.union(*(picture.present for row in self.rows for picture in row))


def read_scenes(runs: Sequence[Run]) -> tuple[list[int], list[Scene]]:
    """The steps, spread evenly over the validations that have previews, and the first images that all runs drew."""
    numbers = [_numbers(run.folder.previews) for run in runs]
    # By name: numbers differ between runs with different numbers of previews.
    names = [name for name in numbers[0] if all(name in others for others in numbers)][:MOST_IMAGES]
    if not names:
        raise UserError(f"{_folders(runs)} hold previews of different images")
    drawn = [
        set(predicted_steps(run.folder.previews).get(own[name], ()))
        for run, own in zip(runs, numbers, strict=True)
        for name in names
    ]
    steps = evenly(sorted(set.intersection(*drawn)), MOST_STEPS)
    if not steps:
        raise UserError(f"{_folders(runs)} hold no previews of the same step")
    return steps, [_scene(runs, [own[name] for own in numbers], name, steps) for name in names]


def _folders(runs: Sequence[Run]) -> str:
    return " and ".join(str(run.folder.previews) for run in runs)


def _numbers(folder: Path) -> dict[str, int]:
    """The number of each image, by its name."""
    names = image_names(folder)
    if not names:
        raise UserError(f"{folder}: holds no previews (no names.json); train with train.previews above 0")
    return {name: number for number, name in enumerate(names)}


def _scene(runs: Sequence[Run], numbers: Sequence[int], name: str, steps: Sequence[int]) -> Scene:
    first, number, void = runs[0].folder.previews, numbers[0], void_color(runs[0].classes)
    image = np.asarray(read_picture(first / f"{number:02d}-image.png").convert("RGB"))
    rows = [
        tuple(_picture(run.folder.previews / f"{own:02d}-step-{step:07d}.png", void) for step in steps)
        for run, own in zip(runs, numbers, strict=True)
    ]
    return Scene(name, image, _picture(first / f"{number:02d}-label.png", void), tuple(rows))


def _picture(path: Path, void: tuple[int, int, int]) -> Picture:
    image = read_palette(path, void)
    return Picture(np.asarray(image.convert("RGB")), frozenset(np.unique(np.asarray(image)).tolist()))
