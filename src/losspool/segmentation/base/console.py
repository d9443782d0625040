"""Where words and progress bars go: one console, standard error, so that output can be piped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TextIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


class _Words:
    """Standard error, as it is at the moment, for words that may be lost.

    A training goes on when its terminal or the reader of its pipe has gone, or the disk of its log is full.
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
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # Rich puts itself there while it draws

    def __getattr__(self, name: str) -> Any:
        if name == "rich_proxied_file":
            raise AttributeError(name)  # Rich would go past this object
        return getattr(self._stream, name)


console = Console(file=cast(TextIO, _Words()), highlight=False, emoji=False)


def say(text: str) -> None:
    """A line for whoever watches. Names in it come from outside, so it is shown as it is, see :func:`plain`."""
    console.print(plain(text), markup=False, soft_wrap=True)


def progress_bar() -> Progress:
    """Text, bar, count and time left; it vanishes when done, and is silent where nobody watches."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def track(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """The items, with a progress bar beside them."""
    with progress_bar() as progress:
        yield from progress.track(items, total=total, description=text)


def plain(text: str) -> str:
    """The text with everything that could steer a terminal shown instead of sent: names come from outside."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
