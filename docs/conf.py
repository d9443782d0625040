"""Sphinx settings. `make docs` builds the site; a warning is an error."""

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import losspool

project = "losspool"
author = project_copyright = "the losspool authors"
version = release = losspool.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "smartquotes"]
myst_heading_anchors = 4  # links such as data.md#your-own-images
exclude_patterns = ["_build"]
highlight_language = "text"  # of blocks that name none: commands, mostly

html_theme = "furo"
html_title = "losspool"
html_static_path = ["_static"]
html_css_files = ["losspool.css"]
html_math_renderer = "mathml"  # written at build time: the pages need no script and no network

autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def setup(app: Any) -> None:
    copy_results()
    app.connect("source-read", name_files_outside)
    app.add_html_math_renderer("mathml", inline_renderers=(write_inline, None), block_renderers=(write_block, None))


def copy_results() -> None:
    """Sphinx takes pages from its own folder alone."""
    docs = Path(__file__).parent
    shutil.rmtree(docs / "results", ignore_errors=True)
    for pattern in ("*.md", "*/*.md", "*/figures/*.png"):
        for path in (docs.parent / "results").glob(pattern):
            copy = docs / path.relative_to(docs.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def name_files_outside(app: Any, page: str, source: list[str]) -> None:
    """Links to files of the repository that are not pages lead nowhere on the site: name the file instead.

    The pages of ``results`` are on the site as copies in this folder, where their neighbours have other paths.
    """
    up = "../" * page.count("/")
    text = source[0].replace(f"]({up}../results/", f"]({up}results/").replace(f"]({up}docs/", f"]({up}")
    outside = rf"\[([^\]]+)\]\({re.escape(up)}\.\./(?:\.\./)*([^)#]+)(?:#[^)]*)?\)"
    source[0] = re.sub(outside, r"\1 (`\2`)", text)


def write_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def write_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def mathml(latex: str, **options: str) -> str:
    """As ``convert``, but bars and braces are fences, and names of functions keep their distance."""
    for side, word in {"l": "left", "r": "right"}.items():
        latex = re.sub(rf"\\(?={side}(?:vert|Vert|brace)(?![a-z]))", rf"\\{word}\\", latex)
    found = convert(latex, **options)
    found = re.sub("<mi>(:|&#x02AAF;)</mi>", r"<mo>\1</mo>", found)
    return re.sub("<mi>(log|ln|exp)</mi>", r'<mo form="prefix" lspace="0.17em" rspace="0.1em">\1</mo>', found)
