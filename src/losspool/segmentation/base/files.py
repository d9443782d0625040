"""Atomic writes, so that a reader sees the old file or the new one, never a part. Safe reading of untrusted JSON."""

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
    """Yield a temporary path to write to. When the block succeeds, sync it to disk and rename it to ``path``.

    If the block or the disk fails, ``path`` is unchanged and the temporary file is deleted.
    """
    # Not the process ID: containers that share a folder may use the same one.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)  # the new name must survive a power cut too
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # it may not exist, and the first error is the one to report
            partial.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the system while ``path`` is written into one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def remove(path: Path) -> None:
    """Delete a file if it exists."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be deleted ({error.strerror})") from None


def sweep(folder: Path) -> None:
    """Delete the temporary files of killed writers. No other process may be writing to the folder."""
    for leftover in folder.glob(f".*{PARTIAL}"):
        remove(leftover)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, text: str) -> None:
    """Write JSON text as UTF-8. A file name may not be valid text: what UTF-8 cannot encode becomes a JSON escape."""
    path.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ``UserError`` for any other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: the file does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold a JSON object, got {type(content).__name__}")
    return content
