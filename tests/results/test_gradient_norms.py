"""The figure and the table of gradient norms: each number is that of the run's own file."""

import json

import pytest

from lab_runs import lab_config, write_lab_run
from result_scripts import refused, script

gradient_norms = script("gradient_norms")


def write(folder, method, norms, every=10):
    run = folder / method
    write_lab_run(run, lab_config(method), previews=False)
    lines = [{"step": every * step, "split": "train", "grad_norm": norm} for step, norm in enumerate(norms, start=1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture
def runs(tmp_path):
    base = [4.0, 2.0, 8.0, 1.0, 1.0, 2.0]
    ratios = [3.0, 1.0, 2.0, 1.5, 2.0, 4.0]
    lmp = [norm * ratio for norm, ratio in zip(base, ratios, strict=True)]
    return [write(tmp_path, "base", base), write(tmp_path, "lmp", lmp)]


def options(runs, tmp_path):
    return [*map(str, runs), "--steps", "50", "--warmup", "30", "--out", str(tmp_path / "norms.png")]


def test_ratios_are_taken_line_by_line(runs, tmp_path, capsys):
    gradient_norms.main(options(runs, tmp_path))
    assert [line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["1", "1 |"],
        ["2.00 (1.50–2.50)", "1.75 (1.62–1.88) |"],
    ]
    first = (tmp_path / "norms.png").read_bytes()
    gradient_norms.main(options(runs, tmp_path))
    assert (tmp_path / "norms.png").read_bytes() == first


def test_mistakes_are_one_sentence(runs, tmp_path):
    wanted = options(runs, tmp_path)
    twice = [runs[0], runs[0], *wanted[2:]]
    assert "each run must be of another method, got base, base" in refused(gradient_norms.main, *twice)
    assert "--warmup must be between 0 and --steps 50, got 90" in refused(gradient_norms.main, *wanted, "--warmup", 90)
    assert "has no line of step 70" in refused(gradient_norms.main, *wanted, "--steps", 70)
    wrong = [*wanted, "--out", "norms.gif"]
    assert "--out must end in .png or .svg, got norms.gif" in refused(gradient_norms.main, *wrong)
    other = write(tmp_path / "other", "ohem", [1.0] * 10, every=5)
    assert "the runs must be logged at the same steps" in refused(gradient_norms.main, other, *wanted)
    bad = write(tmp_path / "bad", "focal", [1.0, None, 1.0, 1.0, 1.0])
    assert "needs a positive grad_norm in every line" in refused(gradient_norms.main, bad, *wanted)
