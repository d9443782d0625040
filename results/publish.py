"""Fill documents with tables that commands print. --check reports whether they are current.

The place is between two lines, the first of which holds the command:

    <!-- losspool lab table results/camvid/methods --kind methods --format md -->
    <!-- end -->
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from typer.testing import CliRunner

from losspool.cli.app import app
from losspool.segmentation.base import UserError, replacing

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = tuple(sorted(ROOT.glob("results/*/README.md")))
BEGIN, END = re.compile(r"<!-- (losspool lab table .*) -->\n"), "<!-- end -->\n"


def filled(document: Path, folder: Path) -> str:
    """The document's text with every place as its command prints it, run in ``folder``."""
    try:
        lines = document.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{document}: cannot be read ({error})") from None
    text = "".join(_filled(document, lines, folder))
    if not BEGIN.search(text):
        raise UserError(f"{document}: has no place to fill, such as <!-- losspool lab table … --> and <!-- end -->")
    return text


def _filled(document: Path, lines: Sequence[str], folder: Path) -> Iterator[str]:
    fenced = inside = False
    for number, line in enumerate(lines, start=1):
        begin = BEGIN.fullmatch(line)
        if inside:
            if begin:
                raise UserError(f"{document}: line {number}: the place before it has no line {END.strip()!r}")
            inside = line != END
            if not inside:
                yield line
            continue
        yield line
        fenced ^= line.startswith("```")
        if fenced:
            continue
        if begin:
            inside = True
            yield f"\n{printed(begin[1], folder)}\n"
        elif "<!--" in line and ("losspool lab" in line or line.strip() == END.strip()):
            raise UserError(f"{document}: line {number} is not the beginning or end of a place: {line.strip()!r}")
    if inside:
        raise UserError(f"{document}: its last place has no line {END.strip()!r}")


def printed(command: str, folder: Path) -> str:
    """By one of the lab's tables in Markdown: other commands may write, or print for the width of a terminal."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"{command}: {error}") from None
    if "--format md" not in " ".join(words) or {"--out", "--help"} & {word.partition("=")[0] for word in words}:
        raise UserError(f"{command}: must have --format md and neither --out nor --help")
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, words[1:])  # in this process: imports take longer than a table
    finally:
        os.chdir(before)
    if isinstance(done.exception, SystemExit):  # an unknown option: reported in a frame
        raise UserError(f"{command}: {[line for line in done.stderr.splitlines() if any(map(str.isalpha, line))][-1]}")
    if isinstance(done.exception, UserError):
        raise UserError(f"{command}: {done.exception}") from None
    if done.exception:
        raise done.exception
    return done.stdout


def main(arguments: Sequence[str] | None = None, documents: Sequence[Path] = DOCUMENTS, folder: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a document is not current")
    options = parser.parse_args(arguments)
    try:
        wanted = {document: filled(document, folder) for document in documents}
        stale = [document for document, text in wanted.items() if text != document.read_text(encoding="utf-8")]
        if stale and options.check:
            raise UserError(f"{stale[0]}: is not what its commands print; python results/publish.py rewrites it")
        for document in stale:
            with replacing(document) as partial:
                partial.write_text(wanted[document], encoding="utf-8")
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
