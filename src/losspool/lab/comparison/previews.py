"""Reads the files in a run's previews folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.data import IGNORE, open_image

_NAME = re.compile(r"(\d{2,})-step-(\d{7,})\.png")


def image_names(folder: Path) -> list[str]:
    """The image name for each number; empty where there are no previews."""
    path = folder / "names.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: is not a list of names")
    return names


def predicted_steps(folder: Path) -> dict[int, list[int]]:
    """The steps at which each numbered image was predicted."""
    found: dict[int, list[int]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return {number: sorted(steps) for number, steps in sorted(found.items())}


def evenly(steps: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the steps, evenly spread, including the first and the last."""
    if len(steps) <= most:
        return list(steps)
    return [steps[place] for place in np.linspace(0, len(steps) - 1, most).round().astype(int)]


def read_picture(path: Path) -> Image.Image:
    """Decode a picture. Damage is a :class:`UserError`."""
    with open_image(path) as image:
        image.load()
        return image


def read_palette(path: Path, void: tuple[int, int, int]) -> Image.Image:
    """Decode a picture of labels or predictions, and give void this colour: version 0.1 always drew it black."""
    image = read_picture(path)
    if image.mode != "P":
        raise UserError(f"{path}: is not a picture of labels with a palette")
    colors = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    colors = np.concatenate([colors, np.zeros((IGNORE + 1 - len(colors), 3), np.uint8)])
    colors[IGNORE] = void
    image.putpalette(colors.ravel().tolist())
    return image
