"""benchmarks/gpu.py, as far as it runs without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


def run(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, env=environment)


def test_a_trial_on_the_cpu_writes_both_files(tmp_path):
    done = run("--device", "cpu", "--tiny", "--rounds", "2", "--output", tmp_path / "trial")
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "trial.json").read_text())
    assert {row["loss"] for row in saved["rows"]} == {"losspool", "F.cross_entropy", "top-k", "sort-based pooling"}
    assert all(row["ms"] > 0 and row["rounds"] == 2 for row in saved["rows"])
    assert "card: none" in done.stdout
    table = (tmp_path / "trial.md").read_text()
    assert table.count("| losspool") == 2
    assert "| of F.cross_entropy |" in table


def test_mistakes_are_one_sentence(tmp_path):
    done = run("--device", "cpu", "--tiny", "--output", tmp_path / "nowhere" / "trial")
    assert done.returncode == 2
    assert "no such folder" in done.stderr
    done = run("--device", "cpu", "--rounds", "0")
    assert "--rounds must be at least 1, got 0" in done.stderr
