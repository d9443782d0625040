"""The settings of a loss."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import Field, PlainValidator, WithJsonSchema

from losspool.segmentation.base import (
    NUMBER,
    Args,
    Fraction,
    NameIn,
    Positive,
    UserError,
    is_import_path,
    parse_number,
    section,
)
from losspool.segmentation.losses.class_weights import BALANCES
from losspool.segmentation.losses.table import LOSSES
from losspool.segmentation.losses.values import (
    Norm,
    Share,
    norm_at,
    parse_m,
    parse_p,
    parse_share,
    read_schedule,
    share_at,
)

T = TypeVar("T")
_BALANCES = ("none", *BALANCES)


def _checked_weights(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        if value not in _BALANCES:
            raise ValueError(f"must be one of {', '.join(_BALANCES)}, or a list with a number per class")
        return value
    numbers = [parse_number(each) for each in value]
    if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in numbers) or not any(numbers):
        raise ValueError("must be numbers of at least 0, and not all 0")
    return tuple(map(float, numbers))


_WEIGHTS = {"anyOf": [{"enum": list(_BALANCES)}, {"type": "array", "items": {"type": "number", "minimum": 0}}]}


def _with_options(cls: type[T]) -> type[T]:
    """Add the options of every loss of the table, which state their types, defaults and meanings there."""
    for options in (loss.options for loss in LOSSES.values() if loss.options is not None):
        for name, hint in get_type_hints(options, include_extras=True).items():
            described = options.__pydantic_fields__[name]
            cls.__annotations__[name] = Annotated[hint, Field(description=described.description)]
            setattr(cls, name, described.default)
    return cls


@section("loss")
@_with_options
class LossConfig:
    """Which loss; see docs/losses.md."""

    name: Annotated[str, NameIn(LOSSES)] = "lmp"
    """The loss: a name from the table of losses, or the import path of another package's."""
    p: Norm = 1.3
    """The norm of loss max-pooling. 1 uses only the hardest pixels, inf is the plain mean. May be a schedule, such as
    ``{from: inf, to: 1.3, steps: 1000}``."""
    m: Share = "25%"
    """A share of the valid pixels (``25%`` or ``0.25``) or a number of them (``1000px``). lmp spreads the weight over
    at least this many; bootstrapping and random_pixels use exactly this many. May be a schedule, such as
    ``{from: 100%, to: 25%, steps: 1000}``."""
    scope: Literal["image", "batch", "global"] = "image"
    """What is pooled as one: each ``image``, the ``batch``, or ``global``, the batches of all processes. ohem always
    selects from the batch."""
    label_smoothing: Fraction = 0.0
    """As in F.cross_entropy. Losses of regions such as dice have none."""
    trim: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.0
    """Share of each pool's largest losses that is left out, as if void: a guard against wrong labels."""
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
    args: Args = field(default_factory=dict)
    """Options of losses of other packages, by name."""

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
    def weighted(self) -> dict[str, float]:
        """The losses of the sum, by name, with their weights."""
        return self.terms or {self.name: 1.0}

    def check_terms(self) -> None:
        """Raise ``UserError`` if the terms do not contain ``name``: run names and tables would show another loss. Or if
        there are ``args``, and no loss of another package."""
        if self.args and not any(map(is_import_path, self.weighted)):
            raise UserError(
                f"loss.args are for losses of other packages, got {self.args} for {', '.join(self.weighted)}; "
                f"losspool config loss lists the settings of its own losses"
            )
        if self.name not in self.weighted:
            raise UserError(
                f"loss.terms must contain loss.name {self.name!r}, got {self.terms}; name a method that is one of them"
            )

    def scheduled(self, step: int) -> dict[str, float | int]:
        """``p`` and ``m`` at a step, 0 for the first, as far as they have a schedule."""
        found: dict[str, float | int] = {}
        if isinstance(self.p, dict):
            found["p"] = norm_at(*read_schedule(self.p, parse_p), step)
        if isinstance(self.m, dict):
            found["m"] = share_at(*read_schedule(self.m, parse_share), step)
        return found

    def logged(self, step: int) -> dict[str, Any]:
        """As :meth:`scheduled`, as far as a term uses it, in JSON's values: it has no ∞."""
        used = {key for name in self.weighted for key in (LOSSES[name].scheduled if name in LOSSES else ("p", "m"))}
        found = {key: value for key, value in self.scheduled(step).items() if key in used}
        return {key: "inf" if value == math.inf else value for key, value in found.items()}

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
