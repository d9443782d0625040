"""Where words and progress bars go: one console, standard error, so that output can be piped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


class _Console(Console):
    """A training goes on when whoever reads its words has gone, or their disk is full."""

    def on_broken_pipe(self) -> None:
        self.quiet = True  # Rich would end the program here


console = _Console(stderr=True, highlight=False, emoji=False)


def say(text: str) -> None:
    """A line for whoever watches. Names in it come from outside, so it is shown as it is, see :func:`plain`."""
    with suppress(OSError):
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
