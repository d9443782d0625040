"""YAML from outside: plain values alone, and one sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from losspool.segmentation.errors import UserError


def read_yaml(path: Path, what: str) -> Any:
    """The content; ``what`` the file is stands in the message when there is none. Tags that name code are refused."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: {what} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {what} cannot be read ({error})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
