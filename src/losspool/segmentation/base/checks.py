"""Checks of settings: each raises one sentence that names the field and the value."""

from __future__ import annotations

import math
from collections.abc import Iterable

from losspool.segmentation.base.errors import UserError


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name} must be at least {least}, got {value!r}")


def check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive, got {value!r}")


def check_within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} must lie between {low} and {high}, got {value!r}")
