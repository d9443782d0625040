"""The values of p, m and numbers of pixels as recipes write them.

p and m may change during training, written as ``{from: 100%, to: 25%, steps: 1000}``. Such a schedule is a function of
the step alone, so a resumed run continues with the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, WithJsonSchema

from losspool._validation import parse_units
from losspool.segmentation.base import EXPONENT, UserError, parse_number

KEYS = ("from", "to", "steps")
V = TypeVar("V")


def read_schedule(value: dict[str, Any], read: Callable[[Any], V]) -> tuple[V, V, int]:
    """Both ends, as ``read`` gives them, and the steps between. Raises ValueError with the end of a sentence."""
    if set(value) != set(KEYS):
        raise ValueError("must have the keys from, to and steps as a schedule, and no others")
    ends = []
    for key in KEYS[:2]:
        try:
            ends.append(read(value[key]))
        except ValueError as error:
            raise ValueError(f"has a {key!r} that {error}") from None
    steps = parse_number(value["steps"])
    if not isinstance(steps, int | float) or not 1 <= steps < math.inf or steps != int(steps):
        raise ValueError("has 'steps' that must be a whole number of at least 1")
    return ends[0], ends[1], int(steps)


def norm_at(start: float, end: float, steps: int, step: int) -> float:
    """p at a step. 1/p is interpolated, so that p may start at ∞, the plain mean."""
    if step <= 0 or step >= steps:
        return end if step > 0 else start
    return 1 / ((1 - step / steps) / start + step / steps / end)


def share_at(start: float | int, end: float | int, steps: int, step: int) -> float | int:
    """m at a step: linear, and a whole number if the ends are numbers of pixels."""
    if step <= 0 or step >= steps:
        return end if step > 0 else start
    value = start + (end - start) * step / steps
    return round(value) if isinstance(start, int) else value


def parse_m(value: Any) -> float | int:
    """``"25%"`` and ``0.25`` are a share, ``"1000px"`` a number of pixels; a bare whole number could be either.

    >>> parse_m("25%"), parse_m(0.1), parse_m("1px")
    (0.25, 0.1, 1)
    """
    try:
        return parse_share(value)
    except ValueError as error:
        raise UserError(f"loss.m {error}, got {value!r}") from None


def parse_share(value: Any) -> float | int:
    value = _number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"must have a unit, {value}px or a percentage")
    share = parse_units(value) if isinstance(value, str) else value
    if isinstance(share, int) and not isinstance(share, bool) and share > 0:
        return share
    if not isinstance(share, float):
        raise ValueError("must be like 25%, 0.25 or 1000px")
    if not 0 < share <= 1:
        raise ValueError("must be more than 0 and at most 100%")
    return share


def _checked_m(value: Any) -> Any:
    if isinstance(value, dict):
        start, end, _ = read_schedule(value, parse_share)
        if type(start) is not type(end):
            raise ValueError("must go from a share to a share, or from a number of pixels to a number of pixels")
        return value
    parse_share(value)
    return _number(value)


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; text with a unit stays."""
    return parse_number(value) if isinstance(value, str) and "e" in value.lower() else value


def parse_p(value: Any) -> float:
    number = parse_number(value)
    if not isinstance(number, int | float) or math.isnan(number):
        raise ValueError("must be a number")
    if number < 1:
        raise ValueError("must be at least 1")
    return float(number)


def _checked_p(value: Any) -> Any:
    if not isinstance(value, dict):
        return parse_p(value)
    return dict(zip(KEYS, read_schedule(value, parse_p), strict=True))


def parse_count(value: Any) -> float | int:
    """As ``m``, but a whole number is a number of pixels, as in other implementations of OHEM."""
    if type(value) is not int:
        return parse_share(value)
    if value < 1:
        raise ValueError("must be at least 1 pixel")
    return value


def _checked_count(value: Any) -> Any:
    parse_count(value)
    return value


def _or_schedule(*kinds: dict[str, Any]) -> WithJsonSchema:
    ends = {"anyOf": list(kinds)}
    steps = {"type": ["integer", "string"], "minimum": 1, "pattern": EXPONENT}
    schedule = {
        "type": "object",
        "properties": dict(zip(KEYS, (ends, ends, steps), strict=True)),
        "required": list(KEYS),
        "additionalProperties": False,
    }
    return WithJsonSchema({"anyOf": [*kinds, schedule]})


_SHARES = (
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    {"type": "string", "pattern": r"^\s*([0-9.]+\s*%|[0-9]+\s*px|[0-9.]+[eE]-?[0-9]+)\s*$"},
)
_NORMS = ({"type": "number", "minimum": 1}, {"type": "string", "pattern": f"{EXPONENT}|^inf$"})
_COUNTS = {"anyOf": [*_SHARES, {"type": "integer", "minimum": 1}]}
Norm = Annotated[float | dict[str, Any], PlainValidator(_checked_p), _or_schedule(*_NORMS)]
"""p, or a schedule of it."""
Share = Annotated[str | float | dict[str, Any], PlainValidator(_checked_m), _or_schedule(*_SHARES)]
"""m, or a schedule of it."""
PixelCount = Annotated[str | float | int, PlainValidator(_checked_count), WithJsonSchema(_COUNTS)]
"""A number of pixels, or a share of the valid ones."""
