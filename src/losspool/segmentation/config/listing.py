"""Every setting with its default and meaning, for ``losspool config``."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from losspool.segmentation.base import NameIn, UserError, yaml_line
from losspool.segmentation.config.schema import Config


class Option(NamedTuple):
    """A setting."""

    key: str
    """Its dotted name, as overrides write it."""
    default: str
    """As YAML."""
    meaning: str


def report_options(wanted: str) -> None:
    """``losspool config``: print the settings of :func:`options`."""
    width = max(shutil.get_terminal_size().columns, 40)
    for option in options(wanted):
        meaning = textwrap.fill(option.meaning, width, initial_indent="    ", subsequent_indent="    ")
        print(f"{option.key}: {option.default}\n{meaning}")


def options(wanted: str = "") -> list[Option]:
    """All settings, or those whose names contain ``wanted``: a section such as train, or a word such as crop."""
    sections = [each.name for each in fields(Config) if is_dataclass(getattr(Config(), each.name))]
    part = f"{wanted}." if wanted in sections else wanted
    found = [option for option in _of(Config()) if part in option.key]
    if not found:
        raise UserError(f"no setting has {wanted!r} in its name; the sections are {', '.join(sections)}")
    return found


def _of(section: Any, prefix: str = "") -> Iterator[Option]:
    described = type(section).__pydantic_fields__
    for each in fields(section):
        value, key = getattr(section, each.name), f"{prefix}{each.name}"
        if is_dataclass(value):
            yield from _of(value, f"{key}.")
        else:
            meaning = " ".join((described[each.name].description or "").split())
            if choices := _choices(described[each.name]):
                meaning += f" One of {', '.join(choices)}."
            yield Option(key, yaml_line(value), meaning)


def _choices(field: FieldInfo) -> list[str]:
    """The values that a setting may have, if they are names."""
    if get_origin(field.annotation) is Literal:
        return [each for each in get_args(field.annotation) if isinstance(each, str)]
    return [name for each in field.metadata if isinstance(each, NameIn) for name in each.table]
