"""The live table of a grid."""

import io
import json

import pytest
from rich.console import Console

from losspool.lab.grids import progress, read_grid
from losspool.lab.grids.progress import Progress
from runs_for_tests import write_recipe


@pytest.fixture
def jobs(tmp_path):
    recipe = write_recipe(tmp_path, steps=12)
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"recipe: {recipe.name}\nruns: [{{method: [base, lmp, focal]}}]\nseeds: [0, 1]\n")
    return read_grid(grid).jobs(tmp_path / "runs")


def shown(table) -> list[list[str]]:
    terminal = Console(width=80, height=30, record=True, file=io.StringIO())
    terminal.print(table)
    return [line.split() for line in terminal.export_text().splitlines()]


def log(job, *lines):
    job.folder.path.mkdir(parents=True, exist_ok=True)
    job.folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9, "sp')


def test_the_table_shows_state_step_and_last_validation(jobs):
    seen = Progress(jobs)
    log(
        jobs[4],
        {"step": 6, "split": "train"},
        {"step": 6, "split": "val", "miou": 0.51234},
        {"step": 8, "split": "train"},
    )
    seen.set("focal-s0", "running")
    seen.set("base-s0", "finished")
    seen.set("lmp-s0", "failed")
    head, *rows, caption = shown(seen.table())
    assert head == ["run", "state", "step", "val", "mIoU"]
    assert rows[:2] == [["focal-s0", "running", "8", "/", "12", "51.23"], ["lmp-s0", "failed", "0", "/", "12"]]
    assert rows[-1] == ["base-s0", "finished", "0", "/", "12"]
    assert caption == ["1", "of", "6", "runs", "finished"]


def test_it_looks_again_at_those_that_run(jobs):
    seen = Progress(jobs)
    seen.set("base-s0", "running")
    log(jobs[0], {"step": 4, "split": "train"})
    assert shown(seen.table())[1][2] == "0"
    seen.update()
    assert shown(seen.table())[1][2] == "4"


def test_of_many_runs_those_are_shown_that_fit(jobs, monkeypatch):
    monkeypatch.setattr(progress, "console", Console(height=8))
    seen = Progress(jobs)
    seen.set("focal-s1", "running")
    _, *rows, caption = shown(seen.table())
    assert [row[0] for row in rows] == ["focal-s1", "base-s0", "base-s1", "lmp-s0"]
    assert caption == ["0", "of", "6", "runs", "finished"]


def test_on_a_terminal_the_table_is_drawn(jobs, monkeypatch):
    terminal = Console(force_terminal=True, width=80, record=True, file=io.StringIO())
    monkeypatch.setattr(progress, "console", terminal)
    with Progress(jobs) as seen:
        seen.set("base-s0", "running")
    assert "base-s0" in terminal.export_text()
