"""Files: written so that a reader sees the old one or the new one, never a part; JSON of any origin read safely."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from losspool.segmentation.base.errors import UserError

PARTIAL = ".partial"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the path given here; when the block ends well it takes the place of ``path``, on disk for certain.

    If the block or the disk fails, ``path`` is as it was and nothing is left behind.
    """
    # Not the process's number: containers that share a folder have the same ones.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)  # the new name, too, must survive a power cut
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # it may never have come about, and the first error is the one to tell
            partial.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """The file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be deleted ({error.strerror})") from None


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind, in a folder where nobody else is writing now."""
    for leftover in folder.glob(f".*{PARTIAL}"):
        remove(leftover)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, text: str) -> None:
    """A file's name may be no text at all: what UTF-8 cannot hold is escaped, as JSON does it."""
    path.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds; anything else is named."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: the file does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no settings by name")
    return content
