"""The settings of a loss."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from losspool._validation import parse_units
from losspool.segmentation.base import (
    NUMBER,
    Fraction,
    NameIn,
    NonNegative,
    Positive,
    UserError,
    parse_number,
    section,
)
from losspool.segmentation.losses.schedules import KEYS, norm_at, read_schedule, share_at
from losspool.segmentation.losses.table import LOSSES

_EXPONENT = "^[-+]?[0-9.]+[eE][-+]?[0-9]+$"
_BALANCES = ("none", "inverse", "median", "effective")


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
    value = _number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"must have a unit, {value}px or a percentage")
    share = parse_units(value) if isinstance(value, str) else value
    if isinstance(share, int) and not isinstance(share, bool):
        return share
    if not isinstance(share, float):
        raise ValueError("must be like 25%, 0.25 or 1000px")
    if not 0 < share <= 1:
        raise ValueError("must be more than 0 and at most 100%")
    return share


def _checked_m(value: Any) -> Any:
    if isinstance(value, dict):
        start, end, _ = read_schedule(value, _parsed)
        if type(start) is not type(end):
            raise ValueError("must go from a share to a share, or from a number of pixels to a number of pixels")
        return value
    _parsed(value)
    return _number(value)


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; text with a unit stays."""
    return parse_number(value) if isinstance(value, str) and "e" in value.lower() else value


def _parsed_p(value: Any) -> float:
    number = parse_number(value)
    if not isinstance(number, int | float) or math.isnan(number):
        raise ValueError("must be a number")
    if number < 1:
        raise ValueError("must be at least 1")
    return float(number)


def _checked_p(value: Any) -> Any:
    if not isinstance(value, dict):
        return _parsed_p(value)
    return dict(zip(KEYS, read_schedule(value, _parsed_p), strict=True))


def _parsed_count(value: Any) -> float | int:
    """As ``m``, but a whole number is a number of pixels, as in other implementations of OHEM."""
    if type(value) is not int:
        return _parsed(value)
    if value < 1:
        raise ValueError("must be at least 1 pixel")
    return value


def _checked_count(value: Any) -> Any:
    _parsed_count(value)
    return value


def _checked_weights(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        if value not in _BALANCES:
            raise ValueError(f"must be one of {', '.join(_BALANCES)}, or a list with a number per class")
        return value
    numbers = [parse_number(each) for each in value]
    if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in numbers) or not any(numbers):
        raise ValueError("must be numbers of at least 0, and not all 0")
    return tuple(map(float, numbers))


def _or_schedule(*kinds: dict[str, Any]) -> WithJsonSchema:
    ends = {"anyOf": list(kinds)}
    steps = {"type": ["integer", "string"], "minimum": 1, "pattern": _EXPONENT}
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
_NORMS = ({"type": "number", "minimum": 1}, {"type": "string", "pattern": f"{_EXPONENT}|^inf$"})
_COUNTS = {"anyOf": [*_SHARES, {"type": "integer", "minimum": 1}]}
_WEIGHTS = {"anyOf": [{"enum": list(_BALANCES)}, {"type": "array", "items": {"type": "number", "minimum": 0}}]}


@section("loss")
class LossConfig:
    """Which loss; see docs/losses.md."""

    name: Annotated[str, NameIn(LOSSES)] = "lmp"
    """The loss: a name from the table of losses, or the import path of another package's."""
    p: Annotated[float | dict[str, Any], PlainValidator(_checked_p), _or_schedule(*_NORMS)] = 1.3
    """The norm of loss max-pooling. 1 uses only the hardest pixels, inf is the plain mean. May be a schedule, such as
    ``{from: inf, to: 1.3, steps: 1000}``."""
    m: Annotated[str | float | dict[str, Any], PlainValidator(_checked_m), _or_schedule(*_SHARES)] = "25%"
    """A share of the valid pixels (``25%`` or ``0.25``) or a number of them (``1000px``). lmp spreads the weight over
    at least this many; bootstrapping and random_pixels use exactly this many. May be a schedule, such as
    ``{from: 100%, to: 25%, steps: 1000}``."""
    scope: Literal["image", "batch", "global"] = "image"
    """What is pooled as one: each ``image``, the ``batch``, or ``global``, the batches of all processes. ohem always
    selects from the batch."""
    label_smoothing: Fraction = 0.0
    """As in F.cross_entropy."""
    trim: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.0
    """Share of each pool's largest losses that is left out, as if void: a guard against wrong labels."""
    focal_gamma: NonNegative = 2.0
    """The exponent of the focal loss."""
    ohem_threshold: Fraction = 0.7
    """ohem uses the pixels whose label has a lower probability than this."""
    min_kept: Annotated[str | float | int, PlainValidator(_checked_count), WithJsonSchema(_COUNTS)] = 100_000
    """ohem uses at least this many pixels of the batch: a number (``100000``), or a share of the valid pixels
    (``6%``)."""
    class_weights: Annotated[str | tuple[float, ...], PlainValidator(_checked_weights), WithJsonSchema(_WEIGHTS)] = (
        "none"
    )
    """Factors for the losses of each class: none, inverse or median frequency, effective number, or a list with a
    number per class. Scaled to a mean of 1 over the training pixels."""
    effective_beta: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.999999
    """β of ``class_weights=effective``. Pixels of a class beyond 1/(1 - β) hardly change its weight."""
    logit_adjustment: Annotated[float, Field(ge=0, allow_inf_nan=False), NUMBER] = 0.0
    """τ of logit adjustment: the loss sees the logits plus τ·log of the class's share of the training pixels."""
    terms: dict[Annotated[str, NameIn(LOSSES)], Positive] = field(default_factory=dict)
    """A weighted sum of losses, such as ``{lmp: 1, dice: 0.5}``; ``name`` must be one of them (default: ``name``
    alone)."""

    @property
    def share(self) -> float | int:
        """``m`` as the loss takes it: a float is a share, an int a number of pixels."""
        return parse_m(self.m)

    @property
    def norm(self) -> float:
        """``p`` as the loss takes it."""
        if isinstance(self.p, dict):
            raise UserError(f"loss.p must be a number here, got the schedule {self.p}")
        return self.p

    @property
    def least_kept(self) -> float | int:
        """``min_kept`` as ohem takes it: a float is a share, an int a number of pixels."""
        return _parsed_count(self.min_kept)

    @property
    def weighted(self) -> dict[str, float]:
        """The losses of the sum, by name, with their weights."""
        return self.terms or {self.name: 1.0}

    def check_terms(self) -> None:
        """Raise ``UserError`` if the terms do not contain ``name``: run names and tables would show another loss."""
        if self.name not in self.weighted:
            raise UserError(
                f"loss.terms must contain loss.name {self.name!r}, got {self.terms}; name a method that is one of them"
            )

    def scheduled(self, step: int) -> dict[str, float | int]:
        """``p`` and ``m`` at a step, 0 for the first, as far as they have a schedule."""
        found: dict[str, float | int] = {}
        if isinstance(self.p, dict):
            found["p"] = norm_at(*read_schedule(self.p, _parsed_p), step)
        if isinstance(self.m, dict):
            found["m"] = share_at(*read_schedule(self.m, _parsed), step)
        return found

    def logged(self, step: int) -> dict[str, Any]:
        """As :meth:`scheduled`, in JSON's values: it has no ∞."""
        return {key: "inf" if value == math.inf else value for key, value in self.scheduled(step).items()}

    def at(self, step: int | None) -> LossConfig:
        """The settings at a step, with a value in place of each schedule. Without schedules the step is not needed."""
        if not isinstance(self.p, dict) and not isinstance(self.m, dict):
            return self
        if step is None:
            raise UserError("loss.p and loss.m have a schedule, which needs the step; pass step=")
        now: dict[str, Any] = self.scheduled(step)
        if isinstance(now.get("m"), int):
            now["m"] = f"{now['m']}px"
        return replace(self, **now)
