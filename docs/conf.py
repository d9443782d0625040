"""Sphinx settings. `make docs` builds the site; a warning is an error."""

import re
from importlib.metadata import version as installed
from typing import Any

project = "losspool"
author = project_copyright = "the losspool authors"
version = release = installed("losspool")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "smartquotes"]
myst_heading_anchors = 4  # links such as data.md#your-own-images
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "losspool"
html_static_path: list[str] = []

autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def setup(app: Any) -> None:
    app.connect("source-read", name_files_outside)


def name_files_outside(app: Any, page: str, source: list[str]) -> None:
    """Links to files of the repository that are not pages lead nowhere on the site: name the file instead."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?!docs/)([^)#]+)(?:#[^)]*)?\)", r"\1 (`\2`)", source[0])
