"""The figure and the table of gradient norms: each number is that of the run's own file."""

import json

import numpy as np
import pytest

from lab_runs import lab_config, write_lab_run
from result_scripts import refused, script

gradient_norms = script("gradient_norms")


def write(folder, method, norms):
    run = folder / method
    write_lab_run(run, lab_config(method), previews=False)
    lines = [{"step": step, "split": "train", "grad_norm": norm} for step, norm in enumerate(norms, start=1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture
def runs(tmp_path):
    base = [4.0, 2.0, 8.0, 1.0, 1.0, 2.0]
    ratios = [3.0, 1.0, 2.0, 1.5, 2.0, 4.0]
    lmp = [norm * ratio for norm, ratio in zip(base, ratios, strict=True)]
    return [write(tmp_path, "base", base), write(tmp_path, "lmp", lmp)]


def options(runs, tmp_path):
    return [*map(str, runs), "--steps", "5", "--warmup", "3", "--out", str(tmp_path / "norms.png")]


def test_ratios_are_taken_step_by_step(runs, tmp_path, capsys):
    gradient_norms.main(options(runs, tmp_path))
    assert [line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["1.00", "1.00", "1", "1 |"],
        ["1.75", "3.00", "2.00 (1.50–2.50)", "1.75 (1.62–1.88) |"],
    ]
    first = (tmp_path / "norms.png").read_bytes()
    gradient_norms.main(options(runs, tmp_path))
    assert (tmp_path / "norms.png").read_bytes() == first


def test_the_running_median():
    values = np.random.default_rng(0).normal(size=60)
    found = gradient_norms.running_median(values)
    assert found[30] == np.median(values[20:41])
    assert found[0] == np.median(values[:11])


def test_mistakes_are_one_sentence(runs, tmp_path):
    wanted = options(runs, tmp_path)
    twice = [runs[0], runs[0], *wanted[2:]]
    assert "each run must be of another method, got base, base" in refused(gradient_norms.main, *twice)
    assert "--warmup must be between 0 and --steps 5, got 9" in refused(gradient_norms.main, *wanted, "--warmup", 9)
    assert "needs a line for each of the steps 1 to 7" in refused(gradient_norms.main, *wanted, "--steps", 7)
    wrong = [*wanted, "--out", "norms.gif"]
    assert "--out must end in .png or .svg, got norms.gif" in refused(gradient_norms.main, *wrong)
    bad = write(tmp_path / "bad", "focal", [1.0, None, 1.0, 1.0, 1.0])
    assert "needs a positive grad_norm in every line" in refused(gradient_norms.main, bad, *wanted)
