"""Assembles the page: one HTML file that makes no requests and runs only its own scripts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from losspool.lab.comparison import Statistics
from losspool.lab.report.data import PageData, page_data
from losspool.segmentation.base import replacing

SIZE = 2_000_000
"""Bytes of a page at most: pictures get the room that the rest of it leaves."""
PLOTLY = "plotly/plotly-basic.min.js"
"""npm's plotly.js-basic-dist-min: lines, bars and points, a quarter of the size of Plotly's whole bundle."""
SCRIPTS = (
    "solver.js",
    "dom.js",
    "theme.js",
    "charts.js",
    "tables.js",
    "compared.js",
    "scores.js",
    "classes.js",
    "other.js",
    "curves.js",
    "pooling.js",
    "previews.js",
    "panel.js",
    "page.js",
)
"""Joined to one script in this order: a file may use what an earlier one defines."""


def write_report(statistics: Statistics, path: Path) -> Path:
    """Write the page to ``path`` atomically. The same runs give the same bytes."""
    fixed = _fixed_parts()
    room = SIZE - sum(len(part.encode()) for part in (_file("page.html"), *fixed.values()))
    page = _page(fixed, page_data(statistics, room))
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


def escaped_json(data: Any) -> str:
    """JSON for a ``<script>`` element: no string in it can end the element or open a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Surrogates come from file names that are not UTF-8, and cannot be encoded.
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _fixed_parts() -> dict[str, str]:
    """What is the same in every report."""
    plotly, own = _script(_file(PLOTLY)), _script("\n".join(map(_file, SCRIPTS)))
    return {"policy": html.escape(_policy(plotly, own)), "style": _file("page.css"), "plotly": plotly, "script": own}


def _page(fixed: dict[str, str], data: PageData) -> str:
    own = {"title": html.escape(data["title"]), "answer": html.escape(data["answer"]), "data": escaped_json(data)}
    parts = {**fixed, **own}
    # In one pass: inserted text may contain braces itself.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _file("page.html"))


def _policy(*scripts: str) -> str:
    """A Content-Security-Policy that allows these scripts only, and no loading.

    Plotly sets style attributes, and saves pictures through data: and blob:.
    """
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _script(source: str) -> str:
    """Escape the source so that no string in it ends its element, with newlines as a browser hashes them."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", source.replace("\r\n", "\n"), flags=re.IGNORECASE)


def _file(name: str) -> str:
    return files("losspool.lab.report").joinpath(name).read_text(encoding="utf-8")
