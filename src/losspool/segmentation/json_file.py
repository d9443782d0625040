"""Writing JSON, and reading what a person or a killed process may have left in any state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from losspool.segmentation.errors import UserError


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
