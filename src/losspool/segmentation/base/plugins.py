"""Code of other packages, by import path: how a recipe names a network, dataset or loss that is not ours."""

from __future__ import annotations

import importlib
from collections.abc import Collection

from losspool.segmentation.base.errors import UserError


def is_import_path(name: str) -> bool:
    """Whether a name means code of another package: ours have no dot in their names."""
    return "." in name


def import_by_path(path: str, what: str) -> object:
    """The attribute at ``package.module.attribute``. ``what`` it is meant to be starts the error message."""
    where, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(where), attribute)
    except Exception as error:  # another package may raise anything while it is imported
        problem = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{what} {path!r} cannot be imported ({problem}); is it installed, or on PYTHONPATH?"
        ) from error


def check_trusted(where: object, what: str, name: str, trusted: Collection[str]) -> None:
    """A run from elsewhere may name any code: import it only if the user named it too."""
    if is_import_path(name) and name not in trusted:
        raise UserError(f"{where}: the {what} is code, {name}; if you trust it, name it: --trust {name}")
