"""What a grid produces in the end, from one set of statistics."""

from types import SimpleNamespace

import pytest

from lab_runs import lab_config, write_lab, write_lab_evaluation, write_lab_run
from losspool.lab.comparison import read_run, statistics
from losspool.lab.grids.results import write_results
from losspool.segmentation.runs import RunFolder


@pytest.fixture
def runs(tmp_path):
    """base, lmp and focal, evaluated on single images."""
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    config = lab_config("focal")
    write_lab_evaluation(write_lab_run(root / "focal-s0", config, previews=False), config, level=0.4)
    return root


@pytest.fixture
def resampled(monkeypatch):
    """A list that grows with every bootstrap over images."""
    calls = []

    def count(*arguments):
        calls.append(arguments)
        return original(*arguments)

    original = statistics.image_intervals
    monkeypatch.setattr(statistics, "image_intervals", count)
    return calls


def test_tables_figures_and_report_share_one_bootstrap_per_variant(runs, resampled, tmp_path, capsys):
    jobs = [SimpleNamespace(folder=RunFolder(path)) for path in sorted(runs.iterdir())]
    write_results(SimpleNamespace(scores="test", baseline=None, class_baseline=None), jobs, jobs, tmp_path / "out")
    assert len(resampled) == 2  # lmp and focal, against base
    assert "interval over images" in (tmp_path / "out/tables/methods.md").read_text()
    assert "interval over images" in (tmp_path / "out/tables/classes.md").read_text()
    assert (tmp_path / "out/figures/fig3.png").exists()
    assert '"over_images":{' in (tmp_path / "out/report.html").read_text()
    assert capsys.readouterr().out.splitlines()[-1].startswith("report: ")


def test_tables_by_class_have_a_baseline_of_their_own(tmp_path):
    """The paper's Table 2 compares with BASE, its Table 3 and Fig. 3 with BASE+."""
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(), previews=False)
    jobs = [SimpleNamespace(folder=RunFolder(path), config=read_run(path).config) for path in sorted(root.iterdir())]
    grid = SimpleNamespace(scores=None, baseline="base", class_baseline="lmp")
    write_results(grid, jobs, jobs, tmp_path / "out")
    columns = {name: (tmp_path / f"out/tables/{name}.md").read_text() for name in ("methods", "classes", "worst")}
    assert "Δ to base" in columns["methods"]
    assert "base Δ" in columns["classes"]
    assert "of lmp" in columns["worst"]


def test_a_brief_end_is_one_table_the_answer_and_the_report(tmp_path, capsys):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(), previews=False)
    jobs = [SimpleNamespace(folder=RunFolder(path), config=read_run(path).config) for path in sorted(root.iterdir())]
    grid = SimpleNamespace(scores=None, baseline="base", class_baseline=None)
    write_results(grid, jobs, jobs, tmp_path / "out", brief=True)
    title, columns, *rows, _, _, sentence, report = capsys.readouterr().out.splitlines()
    assert title.startswith("IoU in % of the rare classes")
    assert columns.split() == ["Class", "%", "of", "pixels", "base", "lmp"]
    assert [row.split("  ")[0] for row in rows] == ["pole", "traffic sign", "rider", "mean of all 5"]
    assert sentence.startswith("lmp is ")
    assert report == f"report: {tmp_path / 'out/report.html'}"
    assert (tmp_path / "out/report.html").exists()
    assert not (tmp_path / "out/figures").exists()


def test_all_tables_share_one_bootstrap_per_variant(runs, resampled, command):
    code, output, _ = command("lab", "table", runs, "--scores", "test")
    assert code == 0
    for label in ("lmp", "focal"):
        assert f"{label} Δ 95 % interval over images" in output  # of the table of classes; that of methods has it, too
    assert len(resampled) == 2
