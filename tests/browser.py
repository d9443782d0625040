"""A Chromium that is on this machine, for tests that look at a page as its reader does."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def browser() -> Iterator[Browser]:
    """Skips the test where no Chromium is found."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield running
        finally:
            running.close()


@dataclass
class Opened:
    """A page, and what went wrong in it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    """Everything asked for but the file itself, data: and blob:."""
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of its console, uncaught errors, dialogs."""


@contextmanager
def opened(running: Browser, path: Path, *, width: int = 1280, **options) -> Iterator[Opened]:
    """The file in a page of its own; options as Playwright's contexts take them."""
    url = path.resolve().as_uri()
    context = running.new_context(viewport={"width": width, "height": 900}, **options)
    try:
        found = Opened(context.new_page())

        def asked(request) -> None:
            if request.url.partition("#")[0] != url and not request.url.startswith(("data:", "blob:")):
                found.requests.append(request.url)

        def said(message) -> None:
            if message.type in ("error", "warning"):
                found.complaints.append(message.text)

        def dialog(box) -> None:
            found.complaints.append(f"dialog: {box.message}")
            box.dismiss()

        context.on("request", asked)
        found.page.on("console", said)
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("dialog", dialog)
        found.page.goto(url)
        yield found
    finally:
        context.close()


def marks(page, chart: str) -> int:
    """How many points, lines and bars a chart of the report has."""
    return page.locator(f"#{chart} .plot svg :is(.point, .js-line)").count()


def column(page, table: str, place: int) -> list[str]:
    """The texts of a column of a table of the report."""
    return page.locator(f"#{table} tbody tr > :nth-child({place})").all_inner_texts()
