"""Sections of settings: frozen dataclasses that pydantic validates. A mistake becomes one sentence, a UserError."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, is_dataclass
from functools import wraps
from reprlib import Repr
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_type_hints

from annotated_types import GroupedMetadata
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.dataclasses import dataclass

from losspool.segmentation.base.errors import UserError, did_you_mean
from losspool.segmentation.base.plugins import is_import_path

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def section(name: str = "") -> Callable[[type[T]], type[T]]:
    """A class decorator like ``dataclass(frozen=True)`` that validates. Messages call a field ``name.field``."""

    def decorate(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))(cls)
        construct, signature = made.__init__, inspect.signature(made)

        @wraps(construct)
        def __init__(self: T, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            try:
                construct(self, **signature.bind(*args, **kwargs).arguments)
            except ValidationError as error:
                raise UserError(_sentence(error, made, name)) from None

        made.__init__ = __init__
        return made

    return decorate


def validate(cls: type[T], values: Any, where: str = "", name: str = "") -> T:
    """Values by name, as YAML gives them, as a ``cls``. ``where`` they come from starts the message, which calls a
    field ``name.field``."""
    try:
        return TypeAdapter(cls).validate_python(values)
    except ValidationError as error:
        raise UserError(f"{where}{_sentence(error, cls, name)}") from None


def parse_number(value: Any) -> Any:
    """Parse text as a number; return anything else unchanged. YAML 1.1 reads 1e-4 as text."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


EXPONENT = "^[-+]?[0-9.]+[eE][-+]?[0-9]+$"
"""Pattern of the numbers that YAML 1.1 reads as text, for JSON schemas."""
NUMBER = BeforeValidator(parse_number)
Count = Annotated[int, Field(ge=1), NUMBER]
Natural = Annotated[int, Field(ge=0), NUMBER]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), NUMBER]
NonNegative = Annotated[float, Field(ge=0), NUMBER]
Fraction = Annotated[float, Field(ge=0, le=1), NUMBER]


def _storable(args: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(args)
    except (TypeError, ValueError, RecursionError):  # YAML has dates, bytes and sets; checkpoints do not
        raise ValueError("must hold numbers, text, lists and mappings only") from None
    return args


Args = Annotated[dict[str, Any], AfterValidator(_storable)]
"""Keyword arguments of another package's network or loss."""


class NameIn(GroupedMetadata):
    """Annotates text that is a key of a table, or an import path into another package.

    With ``prefixes``, a name behind one of them and a colon is admitted too. ``meant`` maps common spellings to what
    there is, for the message.
    """

    def __init__(
        self, table: Collection[str], prefixes: Collection[str] = (), meant: Mapping[str, str] | None = None
    ) -> None:
        self.table, self._prefixes, self._meant = table, prefixes, meant or {}

    def __iter__(self) -> Iterator[object]:
        yield AfterValidator(self._check)
        patterns = [r"\.", *([f"^({'|'.join(self._prefixes)}):"] if self._prefixes else [])]
        choices = [{"enum": list(self.table)}, *({"pattern": pattern} for pattern in patterns)]
        yield WithJsonSchema({"type": "string", "anyOf": choices})

    def _check(self, name: str) -> str:
        prefix, colon, _ = name.partition(":")
        if name not in self.table and not is_import_path(name) and not (colon and prefix in self._prefixes):
            known = self._meant.get(name.lower())
            near = did_you_mean(known or name, [known] if known else self.table)
            hint = f" ({near})" if near else ""
            others = "".join(f", {each}:NAME" for each in self._prefixes)
            raise ValueError(f"must be one of {', '.join(self.table)}{others} or an import path{hint}")
        return name


# By pydantic's type of error, or its first word. Where its own sentence serves as well, there is no entry.
_PROBLEMS = {
    "bool": "must be true or false",
    "dataclass": "must hold settings by name",
    "dict": "must hold settings by name",
    "entries": "must have {entries} entries",
    "float": "must be a number",
    "greater_than_equal": "must be at least {ge:.10g}",
    "int": "must be a whole number",
    "less_than_equal": "must be at most {le:.10g}",
    "literal": "must be one of {expected}",
    "missing": "is missing",
    "string_type": "must be text (in YAML: in quotes)",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have {min_length} or more entries",
    "tuple": "must be a list",
    "value": "{error}",
}
_REPR = Repr()  # a value may be endless
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200


def _sentence(error: ValidationError, cls: type[Any], name: str = "") -> str:
    """The first mistake: the field, what it must be, the value received."""
    errors: Any = error.errors(include_url=False)
    kind, value, path, context = (errors[0].get(key, {}) for key in ("type", "input", "loc", "ctx"))
    if kind == "missing" and isinstance(path[-1], int):  # of a tuple that is too short; each entry is an error
        kind, path = "entries", path[:-1]
        context["entries"] = len(value) + sum(each["loc"][:-1] == path for each in errors)
    parts = [
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in (name, *path) if part not in ("", "[key]")
    ]
    subject = "".join(parts).removeprefix(".")
    if kind in ("invalid_key", "unexpected_keyword_argument"):
        return f"unknown key {_REPR.repr(subject)}; {_near(cls, path)}"
    if "expected" in context:
        context["expected"] = context["expected"].replace("'", "").replace(" or ", ", ")
    words = _PROBLEMS.get(kind) or _PROBLEMS.get(kind.split("_")[0])
    problem = words.format(**context) if words else errors[0]["msg"].replace("Input should", "must")
    return f"{subject} {problem}, got {_REPR.repr(value)}".lstrip()


def _near(schema: Any, path: Sequence[Any]) -> str:
    """What an unknown key may have been meant for."""
    *parents, key = map(str, path)
    for part in parents:
        schema = get_type_hints(schema).get(part) if is_dataclass(schema) else (None, *get_args(schema))[-1]
    known = [each.name for each in fields(schema)] if is_dataclass(schema) else []
    return did_you_mean(key, known, 0.5, below=parents) or f"choose from {', '.join(known)}"
