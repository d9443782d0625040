"""YAML files that come with the package, by name."""

from __future__ import annotations

import os
from pathlib import Path

from losspool.segmentation.base.errors import UserError, did_you_mean


class Library:
    """The YAML files of some folders. Messages call one of them ``kind``."""

    def __init__(self, kind: str, *folders: Path) -> None:
        self.kind, self.folders = kind, folders

    @property
    def files(self) -> dict[str, Path]:
        """By name, in alphabetical order."""
        return {path.stem: path for folder in self.folders for path in sorted(folder.glob("*.yaml"))}

    def find(self, name: str | Path) -> Path:
        """The file of a name, or ``name`` itself if it is a path: an existing file, or one that :func:`is_path`."""
        text, known = str(name), self.files
        if is_path(text) or os.path.isfile(text):
            return Path(text)
        if text in known:
            return known[text]
        near = did_you_mean(text, known)
        hint = f" ({near})" if near else ""
        raise UserError(
            f"unknown {self.kind} {text!r}{hint}; choose from {', '.join(known)}, or name a file such as mine.yaml"
        )

    def lines(self) -> dict[str, str]:
        """The first line of each file's header, by name."""
        return {name: _comments(path)[0] for name, path in self.files.items()}


def is_path(text: str) -> bool:
    """Whether a text must be a path: with a slash, or the suffix of a YAML file."""
    return "/" in text or os.sep in text or text.endswith((".yaml", ".yml"))


def _comments(path: Path) -> list[str]:
    """The lines of the header, without that for editors."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# ") for line in lines if line.startswith("#") and "yaml-language-server" not in line]
