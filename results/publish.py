"""Fill documents with what commands print, so that every published number can be had anew; --check tells if they are.

The place is between two comments, the first of which is the command:

    <!-- losspool lab table results/camvid/methods --kind methods --format md -->
    <!-- end -->
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from losspool.segmentation.errors import UserError
from losspool.segmentation.storage import replacing

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "results/camvid/README.md")
PLACE = re.compile(r"^<!-- (losspool lab table [^>]*) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)


def printed(command: str, folder: Path) -> str:
    """By a command that is run in ``folder``. Only the lab's tables are: a document is no place for other commands."""
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise UserError(f"{command}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def filled(document: Path, folder: Path) -> str:
    """The document's text with every place as its command prints it."""
    text = document.read_text(encoding="utf-8")
    if not PLACE.search(text):
        raise UserError(f"{document} has no place to fill, such as <!-- losspool lab table … --> and <!-- end -->")
    return PLACE.sub(lambda place: f"<!-- {place[1]} -->\n\n{printed(place[1], folder)}\n<!-- end -->", text)


def main(arguments: Sequence[str] | None = None, documents: Sequence[Path] = DOCUMENTS, folder: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a document is not current")
    options = parser.parse_args(arguments)
    try:
        wanted = {document: filled(document, folder) for document in documents}
        stale = [document for document, text in wanted.items() if text != document.read_text(encoding="utf-8")]
        if stale and options.check:
            raise UserError(f"{stale[0]} is not what its commands print; python results/publish.py rewrites it")
        for document in stale:
            with replacing(document) as partial:
                partial.write_text(wanted[document], encoding="utf-8")
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
