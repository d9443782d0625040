"""The settings of a loss."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from losspool.segmentation.base import NUMBER, Fraction, NameIn, NonNegative, UserError, parse_number, section
from losspool.segmentation.losses.table import LOSSES

_WITH_UNIT = r"\s*((?P<percent>[0-9]+\.?[0-9]*|\.[0-9]+)\s*%|(?P<pixels>0*[1-9][0-9]{0,17})\s*px)\s*"


def parse_m(value: Any) -> float | int:
    """``"25%"`` and ``0.25`` are a share, ``"1000px"`` a number of pixels; a bare whole number could be either.

    >>> parse_m("25%"), parse_m(0.1), parse_m("1px")
    (0.25, 0.1, 1)
    """
    try:
        return _parsed(value)
    except ValueError as error:
        raise UserError(f"loss.m {error}, got {value!r}") from None


def _parsed(value: Any) -> float | int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"must have a unit, {value}px or a percentage")
    written = re.fullmatch(_WITH_UNIT, value) if isinstance(value, str) else None
    if written and written["pixels"]:
        return int(written["pixels"])
    share = float(written["percent"]) / 100 if written else value
    if not isinstance(share, float):
        raise ValueError("must be like 25%, 0.25 or 1000px")
    if not 0 < share <= 1:
        raise ValueError("must be more than 0 and at most 100%")
    return share


def _checked_m(value: Any) -> Any:
    if isinstance(value, str) and "e" in value.lower():
        value = parse_number(value)
    _parsed(value)
    return value


_M_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": r"^\s*([0-9.]+\s*%|[0-9]+\s*px|[0-9.]+[eE]-?[0-9]+)\s*$"},
    ]
}


@section("loss")
class LossConfig:
    """Which loss."""

    name: Annotated[str, NameIn(LOSSES)] = "lmp"
    """The loss: a name from the table of losses, or the import path of another package's."""
    p: Annotated[float, Field(ge=1), NUMBER] = 1.3
    """The norm of loss max-pooling. 1 uses only the hardest pixels, inf is the plain mean."""
    m: Annotated[str | float, PlainValidator(_checked_m), WithJsonSchema(_M_SCHEMA)] = "25%"
    """A share of the valid pixels (``25%`` or ``0.25``) or a number of them (``1000px``). lmp spreads the weight over
    at least this many; bootstrapping and random_pixels use exactly this many."""
    scope: Literal["image", "batch", "global"] = "image"
    """What is pooled as one: each ``image``, the ``batch``, or ``global``, the batches of all processes."""
    label_smoothing: Fraction = 0.0
    """As in F.cross_entropy."""
    focal_gamma: NonNegative = 2.0
    """The exponent of the focal loss."""

    @property
    def share(self) -> float | int:
        """``m`` as the loss takes it: a float is a share, an int a number of pixels."""
        return parse_m(self.m)
