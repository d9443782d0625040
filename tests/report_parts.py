"""A report, taken apart: its elements, and the data in it."""

import json
from html.parser import HTMLParser
from pathlib import Path

from lab_runs import statistics_of
from losspool.lab.report import write_report


class Parts(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": [], "h1": []}
        self._open: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in self.texts:
            self._open = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        if tag == self._open:
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.texts[self._open][-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.texts["script"][0])


def report(root: Path, **options) -> Parts:
    """Of all runs in the folder."""
    path = write_report(statistics_of(root, **options), root.parent / "report.html")
    return Parts(path.read_text(encoding="utf-8"))
