"""Errors that a user can fix. Any other exception that leaves this package is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6, *, below: Sequence[str] = ()) -> str:
    """A 'did you mean …?' for the closest name, prefixed by ``below``; empty if none is close."""
    near = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {'.'.join([*below, near[0]])!r}?" if near else ""


class UserError(Exception):
    """A mistake outside the code. The message is one sentence that names the value, file or field."""


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine ran out of memory. torch reports it only in the text of a RuntimeError."""
    in_text = "allocate memory" in str(error) or "out of memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and in_text)


class NotImportableError(UserError):
    """Code of another package that is missing, or fails as it is imported."""


class BrokenFileError(UserError):
    """A dataset file that is permanently unusable: missing, corrupt, or inconsistent with its image or label.

    A run may skip this file. Problems of the machine (memory, open files, the disk) therefore never raise this error.
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[BrokenFileError], tuple[Path | str, str]]:
        return BrokenFileError, (self.path, self.problem)  # loader workers pickle it for the trainer
