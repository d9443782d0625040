"""Photometric augmentation: one colour matrix for brightness, contrast, saturation, hue and grey, then a blur.

The colour mathematics is apart from the geometry in ``augment.py``: it changes no label and needs no coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

NUMBERS = 6
"""How many random numbers :func:`recoloured` takes."""

# Ranges at strength 1, about those of SSD (Liu et al., 2016).
_FACTOR = 0.5
"""Brightness, contrast and saturation are multiplied by 1 ± this."""
_TURN = math.radians(18)
"""The hue turns by ± this."""
_SIGMA = 1.0
"""The largest standard deviation of the blur, in pixels."""

_LUMA = np.array([0.299, 0.587, 0.114])
_TO_YIQ = np.array([_LUMA, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)


def recoloured(image: Image.Image, strength: float, grey: float, chances: Sequence[float]) -> Image.Image:
    """Change the colours of an RGB image as ``chances``, numbers in [0, 1), decide.

    Brightness, contrast, saturation, hue and blur are each applied with probability ½. With probability ``grey`` the
    result is grey.
    """
    # One number decides whether, in its upper half, and how much: from -1 to 1.
    light, contrast, colour, turn, blur = (
        strength * (4 * max(each - 0.5, 0.0) - (each >= 0.5)) for each in chances[:5]
    )
    saturation = 0.0 if chances[5] < grey else 1 + _FACTOR * colour
    if (light, contrast, saturation, turn) != (0, 0, 1, 0):
        matrix = _matrix(image, 1 + _FACTOR * light, 1 + _FACTOR * contrast, saturation, _TURN * turn)
        image = image.convert("RGB", tuple(matrix.flatten().tolist()))
    return image.filter(ImageFilter.GaussianBlur(_SIGMA * abs(blur))) if blur else image


def _matrix(image: Image.Image, light: float, contrast: float, saturation: float, turn: float) -> NDArray[np.float64]:
    """(3, 4): the matrix and the offset. Contrast keeps the mean grey of the image; hue and saturation its luma."""
    cosine, sine = saturation * math.cos(turn), saturation * math.sin(turn)
    chroma = _FROM_YIQ @ np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]]) @ _TO_YIQ
    mean = float(_LUMA @ np.asarray(image).reshape(-1, 3).mean(0)) if contrast != 1 else 0.0
    return np.column_stack([light * contrast * chroma, np.full(3, light * (1 - contrast) * mean)])
