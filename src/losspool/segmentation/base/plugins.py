"""Networks, datasets and losses of other packages, which a recipe names by import path."""

from __future__ import annotations

import importlib
from collections.abc import Collection

from losspool.segmentation.base.errors import NotImportableError, UserError


def is_import_path(name: str) -> bool:
    """Whether a name is an import path. The built-in names contain no dot."""
    return "." in name


def import_by_path(path: str, what: str) -> object:
    """Import ``package.module.attribute``. ``what`` names the kind of object in the error message."""
    where, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(where), attribute)
    except Exception as error:  # importing another package may raise anything
        problem = f"{type(error).__name__}: {error}"
        raise NotImportableError(
            f"{what} {path!r} cannot be imported ({problem}); is it installed, or on PYTHONPATH?"
        ) from error


def check_trusted(where: object, what: str, name: str, trusted: Collection[str]) -> None:
    """Refuse an import path that the user has not named: a run from elsewhere may name any code."""
    if is_import_path(name) and name not in trusted:
        raise UserError(f"{where}: the {what} {name} is code of another package; if you trust it, pass --trust {name}")
