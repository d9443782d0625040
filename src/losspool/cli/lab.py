"""``losspool lab …``: each command reads its arguments and makes one call into the lab."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from losspool.segmentation.base import Interrupted, UserError, plain, say

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs, at any depth.")]
Baseline = Annotated[str | None, typer.Option(help="Compare with the variant of this label (default: method base).")]
Scores = Annotated[
    str | None, typer.Option(help="Use the evaluation of this name, such as test (default: validation in training).")
]
Steps = Annotated[
    str | None,
    typer.Option(help="Average these checkpoints, such as 800,900,1000 (default: train.keep_steps, or last)."),
]
Images = Annotated[
    str | None,
    typer.Option(help="Score only images whose names match, such as 'Seq05VD*'; needs an evaluation with counts."),
]
Blocks = Annotated[
    int | None,
    typer.Option(help="Resample this many neighbouring images together (default: 10 frames of a video, else 1)."),
]
Classes = Annotated[str | None, typer.Option(help="Score only these classes, such as pedestrian,bicyclist.")]


def needs_the_lab() -> None:
    """Run grids of experiments; make tables, figures and a report."""
    for package in ("matplotlib", "scipy"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"the lab needs {package}: pip install 'losspool[lab]'")


def run(
    grid: Annotated[str, typer.Argument(help="Grid: a name that `losspool recipes` lists, or a file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Override settings of all runs, such as data.root=/data/camvid.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder (default: lab/<grid>).")] = None,
    executor: Annotated[str, typer.Option(help="Run on local, or on a cluster with ray or slurm.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster, such as auto (default: start Ray here).")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Number of runs at a time (default: 1 on local, as many as fit on ray, all on slurm)."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of each run (default: cores divided by jobs).")
    ] = None,
    gpus_per_run: Annotated[
        int | None, typer.Option(help="GPUs of each run on a cluster (default: on Ray, 1 if it has any; on Slurm, 0).")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition (default: the cluster's).")] = None,
    time: Annotated[
        str | None, typer.Option(help="Slurm's time limit, such as 24:00:00; a run that reaches it is requeued.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would run, and print Slurm's sbatch file.")
    ] = False,
) -> None:
    """Run every experiment of a grid, then write its tables, figures and report."""
    from losspool.lab.grids import Options

    options = Options(jobs, threads, address, gpus_per_run, partition, time)
    _run_grid(grid, overrides or [], out=out, executor=executor, options=options, dry_run=dry_run)


def demo(out: Annotated[Path, typer.Option(help="Output folder.")] = Path("demo")) -> None:
    """Train on generated streets with the plain loss and with loss max-pooling, and write a report."""
    needs_the_lab()
    from losspool.lab.grids import Options

    say("training twice on generated streets, a minute and a half on two CPU cores:")
    say("base with the plain loss, lmp with loss max-pooling and its sampling")
    _run_grid("demo", [], out=out, options=Options(jobs=min(os.cpu_count() or 1, 2)), brief=True)


def _run_grid(grid: str, overrides: list[str], **settings: Any) -> None:
    from losspool.lab.grids import run_grid

    try:
        succeeded = run_grid(grid, overrides, **settings)
    except Interrupted:
        say("stopped; run the same command again to resume")
        raise
    raise typer.Exit(0 if succeeded else 1)


def table(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of runs, at any depth.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Print only this table, such as methods; repeatable (default: all)."),
    ] = None,
    format: Annotated[str | None, typer.Option(help="Print md, tex or csv (default: for the terminal).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write every table in every format to this folder.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show the paper's own tables.")] = False,
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
    blocks: Blocks = None,
    classes: Classes = None,
) -> None:
    """Make tables like the paper's from runs."""
    from losspool.lab.comparison import read_statistics
    from losspool.lab.tables import paper_tables, run_tables, show_tables

    choice: dict[str, Any] = {
        "baseline": baseline,
        "scores": scores,
        "steps": steps,
        "images": images,
        "blocks": blocks,
        "classes": classes,
    }
    if bool(runs) == paper:
        raise UserError("name folders of runs, or --paper for the paper's own tables")
    if paper and any(value is not None for value in choice.values()):
        raise UserError("--paper takes no --baseline, --scores, --steps, --images, --blocks or --classes")
    show_tables(run_tables(read_statistics(runs, **choice), kind) if runs else paper_tables(), format, out)


def figures(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of runs, for Fig. 3 and 4.")] = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("figures"),
    only: Annotated[list[str] | None, typer.Option(help="Draw only fig1, fig2, fig3 or fig4.")] = None,
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
    blocks: Blocks = None,
) -> None:
    """Draw the paper's figures from this package's own results: 1 and 2, and with runs 3 and 4."""
    from losspool.lab.comparison import read_statistics
    from losspool.lab.figures import write_figures

    statistics = None
    if runs:
        statistics = read_statistics(runs, baseline=baseline, scores=scores, steps=steps, images=images, blocks=blocks)
    for path in write_figures(out, statistics, only):
        print(plain(str(path)))


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    baseline: Baseline = None,
    scores: Scores = None,
    steps: Steps = None,
    images: Images = None,
    blocks: Blocks = None,
) -> None:
    """Write one page with scores, classes, curves and pictures. It needs no network."""
    from losspool.lab.comparison import read_statistics
    from losspool.lab.report import write_report

    statistics = read_statistics(runs, baseline=baseline, scores=scores, steps=steps, images=images, blocks=blocks)
    print(plain(str(write_report(statistics, out))))
