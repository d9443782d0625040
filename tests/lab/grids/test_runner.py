"""Grids that really run, in processes of their own: finished, skipped, failing; those on clusters are elsewhere."""

import pytest

from grid_runs import STEPS, run, run_in_peace, write_grid


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    return write_grid(folder, [{"method": ["base", "lmp"]}], evaluate=[{"split": "train"}])


@pytest.fixture(scope="module")
def undisturbed(grid):
    return run_in_peace(grid)


def test_from_one_command_to_tables_figures_and_report(undisturbed):
    out, output, error = undisturbed
    for name in ("methods", "classes", "worst", "convergence"):
        for kind in ("md", "tex", "csv"):
            assert (out / "tables" / f"{name}.{kind}").stat().st_size > 0
    for number in (1, 2, 3, 4):
        for kind in ("png", "svg"):
            assert (out / "figures" / f"fig{number}.{kind}").stat().st_size > 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert output.splitlines()[-1] == f"report: {out / 'report.html'}"
    assert "Methods: mIoU in %" in output
    for name in ("base-s0", "lmp-s0"):
        assert f"{name}: finished, step {STEPS} of {STEPS}" in error
        assert (out / "runs" / name / f"evaluation-train-none-{STEPS}.json").exists()


def test_only_what_is_missing_is_run_again(grid, undisturbed):
    """A finished run is skipped; one without its evaluation is evaluated and not trained; the results are the same."""
    out, output, _ = undisturbed
    evaluation = out / "runs" / "base-s0" / f"evaluation-train-none-{STEPS}.json"
    content, log = evaluation.read_bytes(), (out / "logs" / "lmp-s0.log").read_bytes()
    evaluation.unlink()

    def changed():
        return {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}

    before = changed()
    code, again, error = run(grid, out)
    assert code == 0, error
    assert again == output
    assert evaluation.read_bytes() == content
    assert {path: time for path, time in changed().items() if path != evaluation} == before
    assert (out / "logs" / "lmp-s0.log").read_bytes() == log


def test_a_failing_run_stops_no_other_and_is_named(tmp_path):
    grid = write_grid(tmp_path, [{"method": "base"}, {"method": "lmp", "train.lr": [1e30, 0.02]}], steps=8)
    out = tmp_path / "out"
    code, _, error = run(grid, out, "--jobs", "2")
    assert code == 1
    (line,) = [line for line in error.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: lmp-lr1e+30-s0: error: the loss is not finite at step")
    assert str(out / "logs" / "lmp-lr1e+30-s0.log") in line
    assert "Traceback" not in error
    methods = (out / "tables" / "methods.csv").read_text()
    assert [row.split(",")[0] for row in methods.splitlines()[1:]] == ["base", "lmp"]
    assert "Failed, and so without a score: lmp, lr = 1e+30 (seed 0," in (out / "tables" / "methods.md").read_text()
