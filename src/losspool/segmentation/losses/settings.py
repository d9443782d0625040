"""The settings of a loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from losspool.segmentation.base import UserError, check_choice, check_within, is_import_path
from losspool.segmentation.losses.table import LOSSES

SCOPES = ("image", "batch", "global")


@dataclass(frozen=True)
class LossConfig:
    """Which loss."""

    name: str = "lmp"
    """cross_entropy, lmp, inverse_frequency, median_frequency, bootstrapping, focal or random_pixels."""
    p: float = 1.3
    """The norm of loss max-pooling: 1 the hardest pixels alone, inf the plain mean."""
    m: Any = "25%"
    """``25%`` or ``0.25`` of the valid pixels, or ``1000px``. Of lmp this is the least support, of bootstrapping and
    random_pixels how many are used."""
    scope: str = "image"
    """Pool each image by itself, the ``batch`` as one, or ``global``: the batches of all processes as one."""
    label_smoothing: float = 0.0
    """As in F.cross_entropy."""
    focal_gamma: float = 2.0
    """The exponent of the focal loss."""

    def __post_init__(self) -> None:
        if not is_import_path(self.name):
            check_choice("loss.name", self.name, LOSSES)
        check_within("loss.p", self.p, 1, math.inf)
        parse_m(self.m)
        check_choice("loss.scope", self.scope, SCOPES)
        check_within("loss.label_smoothing", self.label_smoothing, 0, 1)
        check_within("loss.focal_gamma", self.focal_gamma, 0, math.inf)

    @property
    def share(self) -> float | int:
        """``m`` as the loss takes it: a float is a share, an int a number of pixels."""
        return parse_m(self.m)


def parse_m(value: Any) -> float | int:
    """``"25%"`` and ``0.25`` are a share, ``"1000px"`` a number of pixels; a bare whole number could be either.

    >>> parse_m("25%"), parse_m(0.1), parse_m("1px")
    (0.25, 0.1, 1)
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            if text.endswith("%"):
                return _share(float(text[:-1]) / 100, value)
            if text.endswith("px"):
                pixels = int(text[:-2])
                if pixels >= 1:
                    return pixels
        except ValueError:
            pass
    elif isinstance(value, float):
        return _share(value, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        raise UserError(f"loss.m = {value!r} could be a share or a number of pixels: write {value}px or a percentage")
    raise UserError(f"loss.m must be like 25%, 0.25 or 1000px, got {value!r}")


def _share(share: float, given: Any) -> float:
    if not 0 < share <= 1 or math.isnan(share):
        raise UserError(f"loss.m must be more than 0 and at most 100%, got {given!r}")
    return share
