"""The previews of two runs, side by side: what Fig. 4 shows, read from their folders."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from losspool.lab.records import Run
from losspool.segmentation.data.protocol import Pixels
from losspool.segmentation.errors import UserError

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
    # By name: with another number of previews the same number stands for another image.
    names = [name for name in numbers[0] if all(name in others for others in numbers)][:MOST_IMAGES]
    if not names:
        raise UserError(f"{_folders(runs)} hold previews of different images")
    drawn = [_steps(run.folder.previews, own[name]) for run, own in zip(runs, numbers, strict=True) for name in names]
    steps = _spread(sorted(set.intersection(*drawn)))
    if not steps:
        raise UserError(f"{_folders(runs)} hold no previews of the same step")
    return steps, [_scene(runs, [own[name] for own in numbers], name, steps) for name in names]


def _folders(runs: Sequence[Run]) -> str:
    return " and ".join(str(run.folder.previews) for run in runs)


def _numbers(folder: Path) -> dict[str, int]:
    """The number of each image, by its name."""
    try:
        names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: holds no previews (no names.json); train with train.previews above 0") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / 'names.json'}: cannot be read ({error})") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{folder / 'names.json'}: is no list of names")
    return {name: number for number, name in enumerate(names)}


def _steps(folder: Path, number: int) -> set[int]:
    found = (re.fullmatch(rf"{number:02d}-step-(\d+)\.png", path.name) for path in folder.iterdir())
    return {int(match[1]) for match in found if match}


def _spread(steps: Sequence[int]) -> list[int]:
    places = np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int)
    return [steps[place] for place in places]


def _scene(runs: Sequence[Run], numbers: Sequence[int], name: str, steps: Sequence[int]) -> Scene:
    first, number = runs[0].folder.previews, numbers[0]
    image = np.asarray(_opened(first / f"{number:02d}-image.png").convert("RGB"))
    rows = [
        tuple(_picture(run.folder.previews / f"{own:02d}-step-{step:07d}.png") for step in steps)
        for run, own in zip(runs, numbers, strict=True)
    ]
    return Scene(name, image, _picture(first / f"{number:02d}-label.png"), tuple(rows))


def _picture(path: Path) -> Picture:
    image = _opened(path)
    if image.mode != "P":
        raise UserError(f"{path}: is no picture of labels with a palette")
    return Picture(np.asarray(image.convert("RGB")), frozenset(np.unique(np.asarray(image)).tolist()))


def _opened(path: Path) -> Image.Image:
    try:
        image = Image.open(path)
        image.load()
    except FileNotFoundError:
        raise UserError(f"{path}: the file does not exist") from None
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for a damaged PNG
        raise UserError(f"{path}: cannot be read ({error})") from None
    return image
