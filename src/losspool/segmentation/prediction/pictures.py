"""Images of predictions and loss weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from losspool.segmentation.base import replacing
from losspool.segmentation.data import CITYSCAPES_LABEL_IDS, ClassInfo, Pixels

# Every 17th of viridis' 256 colours (van der Walt and Smith, 2015), which is perceptually uniform.
_VIRIDIS = """
440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e 1f988b 22a884 35b779 54c568 7ad151 a5db36 d2e21b fde725
"""
_ANCHORS = np.array([list(bytes.fromhex(color)) for color in _VIRIDIS.split()], np.float64)  # (16, 3)


_VOIDS = ((0, 0, 0), (224, 224, 192), (255, 255, 255))
_DARK = 24
"""A colour whose channels are all below this looks black."""


def void_color(classes: Sequence[ClassInfo]) -> tuple[int, int, int]:
    """The colour of void: black, or VOC's cream where a class is black, or white where another has that, too."""
    taken = {info.color for info in classes}
    black = any(max(color) < _DARK for color in taken)
    return next((color for color in _VOIDS[black:] if color not in taken), _VOIDS[-1])


def palette_image(labels: Pixels, classes: Sequence[ClassInfo]) -> Image.Image:
    """Labels as a palette image in the classes' colours, and :func:`void_color`."""
    colors = np.full((256, 3), void_color(classes), np.uint8)
    colors[: len(classes)] = [info.color for info in classes]
    image = Image.fromarray(labels)
    image.putpalette(colors.ravel().tolist())
    return image


def index_image(labels: Pixels) -> Image.Image:
    """Labels as grey levels 0, 1, …"""
    return Image.fromarray(labels)


def ids_image(labels: Pixels, values: Sequence[int]) -> Image.Image:
    """Labels as the values of the dataset's own label files: 8 bits, or 16 if a value needs them."""
    return Image.fromarray(np.array(values, np.uint8 if max(values) < 256 else np.uint16)[labels])


def cityscapes_image(labels: Pixels) -> Image.Image:
    """Labels of Cityscapes' 19 classes as the label ids that its benchmark expects."""
    return Image.fromarray(np.array(CITYSCAPES_LABEL_IDS, np.uint8)[labels])


def overlay_image(image: Image.Image, labels: Pixels, classes: Sequence[ClassInfo]) -> Image.Image:
    """The class colours, blended half and half with the image. A black class, usually background, leaves it bright."""
    blended = Image.blend(image, palette_image(labels, classes).convert("RGB"), 0.5)
    black = [label for label, info in enumerate(classes) if max(info.color) < _DARK]
    if black:
        blended.paste(image, mask=Image.fromarray(np.isin(labels, black)))
    return blended


WEIGHT_UNIT = 25.5
"""Grey levels per unit of weight · n in stored weight maps. The plain mean has weight 1; white is 10 or more."""


def heat_image(values: NDArray[np.floating], top: float, void: NDArray[np.bool_]) -> Image.Image:
    """Values from 0 to ``top`` in viridis, dark to bright; void is black."""
    place = np.clip(values / top, 0, 1) * (len(_ANCHORS) - 1)
    channels = [np.interp(place, np.arange(len(_ANCHORS)), _ANCHORS[:, channel]) for channel in range(3)]
    colors = np.stack(channels, axis=-1).round().astype(np.uint8)  # (H, W) -> (H, W, 3)
    colors[void] = 0
    return Image.fromarray(colors)


def heat_overlay(image: Image.Image, heat: Image.Image) -> Image.Image:
    """The heat map, blended half and half with the image in grey, so that the image's colours do not mix in."""
    return Image.blend(image.convert("L").convert("RGB"), heat, 0.5)


def save_png(image: Image.Image, path: Path) -> None:
    """Write a PNG file atomically."""
    with replacing(path) as partial:
        image.save(partial, format="PNG")
