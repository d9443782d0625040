"""A recipe as text, with the reasons as comments. Apart from ``plan.py``, which decides and does not format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from losspool.segmentation.base import plain, yaml_line


@dataclass(frozen=True)
class Setting:
    """A setting by its dotted name, and the reason for its value."""

    key: str
    value: Any
    reason: str = ""

    @property
    def text(self) -> str:
        """The value in YAML, on one line."""
        return yaml_line(self.value)


def as_yaml(header: Sequence[str], settings: Sequence[Setting]) -> str:
    """A recipe. Settings of a section follow each other."""
    lines = [f"# {line}".rstrip() for line in map(plain, header)]
    for section, some in groupby(settings, key=lambda setting: setting.key.rpartition(".")[0]):
        lines += [f"{section}:"] if section else []
        indent = "  " if section else ""
        for setting in some:
            lines += [f"{indent}# {plain(setting.reason)}"] if setting.reason else []
            lines.append(f"{indent}{setting.key.rpartition('.')[2]}: {setting.text}")
    return "\n".join(lines) + "\n"
