"""What a grid produces in the end: tables, figures and report of its finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from losspool.lab.comparison import VALIDATION, Comparison, Statistics, compare, labels, read_run
from losspool.lab.figures import write_figures
from losspool.lab.grids.grid import Grid, Job
from losspool.lab.report import write_report
from losspool.lab.tables import answer, rare_classes, rare_table, run_tables, show_tables, write_tables
from losspool.segmentation.base import plain, say

_BY_CLASS = ("classes", "worst")  # tables


def write_results(
    grid: Grid, planned: Sequence[Job], finished: Sequence[Job], folder: Path, *, brief: bool = False
) -> None:
    """Write tables, figures and report below ``folder``, and print the tables.

    With ``brief`` print only the rare classes and the answer, and draw no figures: these take seconds.
    """
    comparison, output = _comparison(grid, planned, finished), Console(highlight=False, emoji=False)
    statistics = by_class = Statistics(_against(grid.baseline, comparison, planned))
    if grid.class_baseline not in (None, grid.baseline):
        by_class = Statistics(_against(grid.class_baseline, comparison, planned))
    tables = run_tables(statistics)
    if by_class is not statistics:
        kinds = [table.name for table in tables if table.name in _BY_CLASS]
        others = {table.name: table for table in run_tables(by_class, kinds)} if kinds else {}
        tables = [others.get(table.name, table) for table in tables]
    if brief:
        rare = rare_table(statistics)
        show_tables([rare] if rare else [])
        sentences = [answer(statistics)]
    else:
        show_tables(tables)
        sentences = rare_classes(statistics)
    for sentence in sentences:
        output.print(plain(sentence), markup=False, soft_wrap=True)
    write_tables(tables, folder / "tables")
    if not brief:
        write_figures(folder / "figures", by_class)
        for what in ("tables", "figures"):
            output.print(plain(f"{what}: {folder / what}"), markup=False, soft_wrap=True)
    page = write_report(statistics, folder / "report.html")
    output.print(plain(f"report: {page}"), markup=False, soft_wrap=True)


def _comparison(grid: Grid, planned: Sequence[Job], finished: Sequence[Job]) -> Comparison:
    """Of the finished runs, and of failed ones, which are listed without a score."""
    begun = [job for job in planned if job not in finished and job.folder.description.exists()]
    failed = [run for run in (read_run(job.folder.path) for job in begun) if run.failed]
    runs = [read_run(job.folder.path) for job in finished]
    return compare([*runs, *failed], source=grid.scores or VALIDATION)


def _against(baseline: str | None, comparison: Comparison, planned: Sequence[Job]) -> Comparison:
    """The same comparison with another baseline."""
    if baseline is None:
        return comparison
    # The baseline is found by its runs: with fewer runs to distinguish, its label may be shorter than the grid's.
    planned_labels = zip(planned, labels([job.config for job in planned]), strict=True)
    folders = {job.folder for job, label in planned_labels if label == baseline}
    for variant in comparison.variants:
        if folders & {run.folder for run in variant.runs}:
            return replace(comparison, baseline=variant)
    say(f"no run of the baseline {baseline!r} is finished: compared with {comparison.baseline.label!r}")
    return comparison
