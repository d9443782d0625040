"""The README's table of results, from the runs that are published; with --check, whether it is current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from losspool.lab.records import find_runs
from losspool.lab.statistics import Statistics
from losspool.lab.tables.formats import markdown
from losspool.lab.tables.from_runs import image_notes, score_notes, score_source
from losspool.lab.tables.model import Cell, Table, difference, interval, text
from losspool.lab.variants import compare
from losspool.segmentation.errors import UserError
from losspool.segmentation.storage import replacing

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "results/camvid/methods"
README = ROOT / "README.md"
BEGIN, END = "<!-- camvid -->", "<!-- /camvid -->"
COLUMNS = ("Method", "seeds", "val", "test", "Δ test", "95 % over seeds", "95 % over images")


def result_table(folder: Path) -> Table:
    """Narrower than the lab's own, as it stands on a web page: a row per method, val and test side by side."""
    runs = find_runs([folder])
    test = Statistics(compare(runs, source="test"))
    val = Statistics(compare(runs, steps=test.comparison.steps or None))  # of the same checkpoints
    base = test.comparison.baseline
    over_images = {variant.label: test.image_intervals(variant) for variant in test.comparison.others}
    rows = []
    for ours, on_val in zip(test.comparison.variants, val.comparison.variants, strict=True):
        images = over_images.get(ours.label)
        scores = (Cell(str(val.score(on_val))), Cell(str(test.score(ours))))
        gain = difference(test.gain(ours) if ours is not base else None)
        rows.append([text(ours.label), text(len(ours.runs)), *scores, *gain, interval(images.miou if images else None)])
    title = f"mIoU in %, mean ± standard deviation; Δ is the gain over {base.label}, with its intervals"
    about = [score_source(val.comparison), *score_notes(test.comparison), *image_notes(over_images)]
    return Table("results", title, COLUMNS, rows, about)


def updated(document: Path, body: str) -> str:
    """The document's text with the body between its markers."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN + "\n")
    _, end, after = rest.partition(END + "\n")
    if not (begin and end):
        raise UserError(f"{document} lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{body}\n{end}{after}"


def main(arguments: Sequence[str] | None = None, runs: Path = RUNS, document: Path = README) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if it is not current")
    options = parser.parse_args(arguments)
    try:
        wanted = updated(document, markdown(result_table(runs)))
        if wanted == document.read_text(encoding="utf-8"):
            return
        if options.check:
            raise UserError(f"{document} does not show the runs in {runs}; python results/readme.py rewrites it")
        with replacing(document) as partial:
            partial.write_text(wanted, encoding="utf-8")
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
