"""``losspool lab …``: each command a few lines that read arguments and call the lab."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from losspool.segmentation.base import UserError, plain, say

if TYPE_CHECKING:
    from rich.console import Console

    from losspool.lab.grid import Grid, Job
    from losspool.lab.variants import Comparison

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold them.")]
Baseline = Annotated[
    str | None, typer.Option(help="The variant to compare with, by its label; that of method base if not given.")
]
Scores = Annotated[
    str | None,
    typer.Option(help="The evaluation to take scores from, such as test; the validation in training if not given."),
]
Steps = Annotated[
    str | None,
    typer.Option(help="The checkpoints to average, such as 800,900,1000; those of train.keep_steps, or last."),
]
Images = Annotated[
    str | None,
    typer.Option(help="Score only images whose names match this, such as 'Seq05VD*'; needs counts of each image."),
]
Classes = Annotated[str | None, typer.Option(help="Score only these classes, such as pedestrian,bicyclist.")]


def needs_the_lab() -> None:
    """Experiments: grids of runs, tables, figures, a report."""
    for package in ("matplotlib", "plotly", "scipy"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"the lab needs {package}: pip install 'losspool[lab]'")


def run(
    grid: Annotated[Path, typer.Argument(help="A grid, such as those in recipes/grids.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="For all runs, such as data.root=/data/camvid.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to; lab/<grid> without it.")] = None,
    executor: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of Ray's cluster, such as auto; without it Ray starts here.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="How many runs at a time, on this machine.")] = 1,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of each run; the cores shared out if not given.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would run.")] = False,
) -> None:
    """Run every experiment of a grid, then write its tables, figures and report."""
    from losspool.lab import executors
    from losspool.lab.grid import read_grid
    from losspool.lab.runner import run_jobs
    from losspool.segmentation.base import Interrupted

    for name, value in (("jobs", jobs), ("threads", threads)):
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")
    plan = read_grid(grid)
    folder = out or Path("lab") / plan.name
    planned = plan.jobs(folder / "runs", overrides or [])
    if dry_run:
        _list(planned)
        return
    run_with = executors.executor(executor, jobs=jobs, address=address)
    share = threads or max((os.cpu_count() or 1) // jobs, 1)
    try:
        result = run_jobs(planned, run_with, threads=share, logs=folder / "logs")
    except Interrupted as stopped:
        say("stopped; the same command goes on where it was")
        raise typer.Exit(128 + stopped.signal) from None
    try:
        if result.finished:
            _finish(plan, planned, result.finished, folder)
    finally:
        for name, message in result.failed.items():
            say(f"failed: {name}: {message} (all it said: {folder / 'logs' / f'{name}.log'})")
    if result.failed:
        raise typer.Exit(1)


def table(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of runs, or folders that hold them.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="sensitivity, methods, classes, worst, convergence or looks; all that apply if not given."),
    ] = None,
    format: Annotated[str | None, typer.Option(help="md, tex or csv; for the terminal if not given.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder: every table in every format goes there.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's own tables, from its own numbers.")] = False,
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
    classes: Classes = None,
) -> None:
    """Tables like the paper's, from runs."""
    from losspool.lab.tables.formats import formatted, write_tables
    from losspool.lab.tables.from_paper import paper_tables
    from losspool.lab.tables.from_runs import run_tables

    if bool(runs) == paper:
        raise UserError("name folders of runs, or --paper for the paper's own tables")
    if paper and any(choice is not None for choice in (baseline, scores, steps, images, classes)):
        raise UserError("the paper's own tables have no other scores to choose; leave out --paper or the choice")
    if paper:
        tables = paper_tables()
    else:
        tables = run_tables(_comparison(runs or [], baseline, scores, steps, images, classes), kind)
    if out is not None:
        for path in write_tables(tables, out):
            print(plain(str(path)))
    elif format is not None:
        print("\n".join(formatted(each, format) for each in tables), end="")
    else:
        _show(tables)


def figures(
    runs: Annotated[list[Path] | None, typer.Argument(help="For Fig. 3 and 4: folders of runs.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("figures"),
    only: Annotated[list[str] | None, typer.Option(help="fig1, fig2, fig3 or fig4.")] = None,
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
) -> None:
    """The paper's figures, drawn from this package's own results: 1 and 2, and with runs 3 and 4."""
    from losspool.lab.figures import write_figures

    comparison = _comparison(runs, baseline, scores, steps, images) if runs else None
    for path in write_figures(out, comparison, only):
        print(plain(str(path)))


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
) -> None:
    """One page that shows whether it helped: scores, classes, curves, pictures. It needs no network."""
    from losspool.lab.report import write_report

    print(plain(str(write_report(_comparison(runs, baseline, scores, steps, images), out))))


def _comparison(
    runs: Sequence[Path],
    baseline: str | None,
    scores: str | None,
    steps: str | None,
    images: str | None,
    classes: str | None = None,
) -> Comparison:
    from losspool.lab.records import VALIDATION, find_runs
    from losspool.lab.variants import compare

    try:
        wanted = [int(step) for step in steps.split(",")] if steps else None
    except ValueError:
        raise UserError(f"--steps are whole numbers such as 800,900,1000, got {steps!r}") from None
    chosen = None if classes is None else [name.strip() for name in classes.split(",")]
    comparison = compare(
        find_runs(runs),
        baseline=baseline,
        source=scores or VALIDATION,
        steps=wanted,
        images=images,
        classes=chosen,
    )
    for failure in comparison.failures:
        say(f"left out, because it failed: {failure}")
    return comparison


def _finish(plan: Grid, planned: Sequence[Job], finished: Sequence[Job], folder: Path) -> None:
    """Tables, figures and report of what is finished; the tables on the terminal too."""
    from losspool.lab.figures import write_figures
    from losspool.lab.records import VALIDATION, read_run
    from losspool.lab.report import write_report
    from losspool.lab.statistics import Statistics
    from losspool.lab.tables.formats import write_tables
    from losspool.lab.tables.from_runs import run_tables
    from losspool.lab.tables.questions import rare_classes
    from losspool.lab.variants import compare, labels

    begun = [job for job in planned if job not in finished and job.folder.description.exists()]
    failed = [run for run in (read_run(job.folder.path) for job in begun) if run.failed]  # named, without a score
    runs = [read_run(job.folder.path) for job in finished]
    comparison = compare([*runs, *failed], source=plan.scores or VALIDATION)
    if plan.baseline is not None:
        # By its runs, not by its label: where runs failed, there may be less to tell the others apart by.
        wanted = zip(planned, labels([job.config for job in planned]), strict=True)
        folders = {job.folder for job, label in wanted if label == plan.baseline}
        meant = [variant for variant in comparison.variants if folders & {run.folder for run in variant.runs}]
        comparison = replace(comparison, baseline=meant[0] if meant else comparison.baseline)
        if not meant:
            say(f"no run of the baseline {plan.baseline!r} is finished: compared with {comparison.baseline.label!r}")
    tables = run_tables(comparison)
    _show(tables)
    for sentence in rare_classes(Statistics(comparison)):
        _output().print(plain(sentence), markup=False, soft_wrap=True)
    write_tables(tables, folder / "tables")
    write_figures(folder / "figures", comparison)
    page = write_report(comparison, folder / "report.html")
    for what, where in (("tables", folder / "tables"), ("figures", folder / "figures"), ("report", page)):
        _output().print(plain(f"{what}: {where}"), markup=False, soft_wrap=True)


def _show(tables: Sequence[object]) -> None:
    from losspool.lab.tables.formats import terminal
    from losspool.lab.tables.model import Table

    output = _output()
    for each in tables:
        assert isinstance(each, Table)
        output.print(terminal(each, output.width), "")


def _output() -> Console:
    from rich.console import Console

    return Console(highlight=False, emoji=False)


def _list(jobs: Sequence[Job]) -> None:
    from losspool.lab.runner import state_of

    for job in jobs:
        print(plain(f"{job.name}: {state_of(job)}"))
        for words in job.missing:
            print(plain(f"  losspool {shlex.join(words)}"))
    left = sum(bool(job.missing) for job in jobs)
    print(f"{len(jobs)} runs, {left} of them to run")
