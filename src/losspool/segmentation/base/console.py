"""Messages and progress bars. They go to standard error, so that standard output can be piped."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TextIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


class _LossyStderr:
    """The current ``sys.stderr``, with failed writes ignored.

    Training continues when its terminal or the reader of its pipe is gone, or when the disk with its log is full.
    """

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    @property
    def _stream(self) -> Any:
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # Rich replaces sys.stderr while it draws

    def __getattr__(self, name: str) -> Any:
        if name == "rich_proxied_file":
            raise AttributeError(name)  # else Rich would bypass this object
        return getattr(self._stream, name)


console = Console(file=cast(TextIO, _LossyStderr()), highlight=False, emoji=False)


def say(text: str) -> None:
    """Print a line to standard error. It may contain untrusted names, so it is escaped with :func:`plain`."""
    console.print(plain(text), markup=False, soft_wrap=True)


def progress_bar() -> Progress:
    """A bar with text, count and time left. It disappears when done, and is shown only on a terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def track(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Iterate over ``items`` and show a progress bar."""
    with progress_bar() as progress:
        yield from progress.track(items, total=total, description=text)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with what it counts: ``1 image``, ``2 images``; with ``many``, ``1 image has``, ``2 images have``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share as text, such as ``0.25 %``: two digits, never an exponent, and 100 % only for all."""
    value = 100 * share
    if value == 0 or value >= 10:
        return f"{min(value, 99.9):.1f} %" if 99 < value < 100 else f"{value:.0f} %"
    if value < 1e-4:
        return "less than 0.0001 %"
    return f"{value:.{1 - math.floor(math.log10(value))}f}".rstrip("0").rstrip(".") + " %"


def plain(text: str) -> str:
    """Escape non-printable characters: an untrusted name could contain terminal control sequences."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
