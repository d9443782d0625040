"""Files that a run with ``data.skip_broken`` goes without: never silently."""

from __future__ import annotations

from collections.abc import Callable

from losspool.segmentation.console import say
from losspool.segmentation.errors import BrokenFileError

Skip = Callable[[BrokenFileError], None]
"""What hears of a broken file that is left out. Where there is none, the file is an error."""


class Teller:
    """Says what is wrong with each file, once."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._told: set[str] = set()

    def __call__(self, error: BrokenFileError) -> None:
        if not self._silent and str(error) not in self._told:
            self._told.add(str(error))
            say(f"skipped: {error}")
