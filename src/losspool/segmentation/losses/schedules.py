"""Settings that change during training, written as ``{from: 100%, to: 25%, steps: 1000}``.

A schedule is a function of the step alone, so a resumed run continues with the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from losspool.segmentation.base import parse_number

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
