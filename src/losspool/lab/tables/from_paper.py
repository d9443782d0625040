"""The paper's Tables 1 to 3 out of the paper's own numbers, with a word where they contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from losspool.lab import paper
from losspool.lab.paper import Printed, SweepRow
from losspool.lab.tables.model import Table
from losspool.lab.tables.paper_like import (
    ClassEntry,
    MethodEntry,
    SweepEntry,
    class_table,
    method_table,
    sweep_table,
)
from losspool.segmentation.prediction import Spread


def paper_tables() -> list[Table]:
    """Table 1, the sweep of m, and Tables 2 and 3 for both data sets."""
    tables = [table1(), m_sweep()]
    for dataset in paper.METHODS:
        tables += [table2(dataset), table3(dataset)]
    return tables


def table1() -> Table:
    entries = [_sweep_entry(f"{p:g}" if p != 1 else "1.0", row) for p, row in paper.TABLE1.items()]
    base = _sweep_entry("base_plus", paper.TABLE1_BASE)
    notes = [note for entry in (*entries, base) for note in _contradictions(entry)]
    table = sweep_table(
        "p", paper.STEPS, entries, base, ["Cityscapes' validation images, m = 25 %, efficient tiling.", *notes]
    )
    return _named(table, "paper-table1", "The paper's Table 1: sensitivity to p, mIoU in %")


def m_sweep() -> Table:
    entries = [MethodEntry(f"m = {100 * m:g} %", _spread(printed)) for m, printed in paper.M_SWEEP.items()]
    notes = ["Cityscapes' validation images, p = 1.3, efficient tiling; given in the text of Sec. 5.2."]
    return _named(method_table(entries, None, notes), "paper-m-sweep", "The paper's sweep of m, mIoU in %")


def table2(dataset: str) -> Table:
    rows = {**paper.OTHER_WORKS[dataset], **paper.METHODS[dataset]}
    entries = [MethodEntry(label, _spread(printed)) for label, printed in rows.items()]
    title = f"The paper's Table 2: methods on {dataset}, mIoU in %"
    return _named(method_table(entries, None), f"paper-table2-{dataset}", title)


def table3(dataset: str) -> Table:
    entries, notes = [], []
    for label, rows in paper.TABLE3[dataset].items():
        *classes, mean = (_spread(Printed(*pair)) for pair in zip(rows.mean, rows.std, strict=True))
        entries.append(ClassEntry(label, classes, mean))
        found = sum(rows.mean[:-1]) / len(classes)
        if abs(found - rows.mean[-1]) > 0.01 + 1e-9:  # both are rounded: half a digit each
            notes.append(f"{label}: the paper prints a mean of {rows.mean[-1]:.2f}, its classes give {found:.2f}.")
    title = f"The paper's Table 3: classes of {dataset}, IoU in %"
    return _named(class_table(paper.CLASSES[dataset], entries, notes), f"paper-table3-{dataset}", title)


def _sweep_entry(label: str, row: SweepRow) -> SweepEntry:
    return SweepEntry(label, [score / 100 for score in row.at_steps], paper=row.printed)


def _contradictions(entry: SweepEntry) -> Iterator[str]:
    found, printed = Spread.of(entry.at_steps), entry.paper
    assert printed is not None
    if str(found) != str(printed):
        yield f"p = {entry.label}: the paper prints {printed}, its columns give {found}."


def _spread(printed: Printed) -> Spread:
    return Spread(printed.mean / 100, None if printed.std is None else printed.std / 100)


def _named(table: Table, name: str, title: str) -> Table:
    return Table(name, title, table.columns, table.rows, table.notes, table.rules)
