"""benchmarks/gpu.py, as far as it runs without a GPU."""

import json
from pathlib import Path

from real_runs import Processes, outcome

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


def run(*arguments):
    """Exit code, and what it says."""
    with Processes() as processes:
        return outcome(processes.fork("plain_python", SCRIPT, *arguments))


def test_a_trial_on_the_cpu_writes_both_files(tmp_path):
    code, output = run("--device", "cpu", "--tiny", "--rounds", "2", "--output", tmp_path / "trial")
    assert code == 0, output
    saved = json.loads((tmp_path / "trial.json").read_text())
    assert {row["loss"] for row in saved["rows"]} == {"losspool", "F.cross_entropy", "top-k", "sort-based pooling"}
    assert all(row["ms"] > 0 and row["rounds"] == 2 for row in saved["rows"])
    assert "card: none" in output
    table = (tmp_path / "trial.md").read_text()
    assert table.count("| losspool") == 3
    assert "| of F.cross_entropy |" in table


def test_mistakes_are_one_sentence(tmp_path):
    code, output = run("--device", "cpu", "--tiny", "--output", tmp_path / "nowhere" / "trial")
    assert code == 2
    assert "no such folder" in output
    code, output = run("--device", "cpu", "--rounds", "0")
    assert code == 2
    assert "--rounds must be at least 1, got 0" in output
    code, output = run("--device", "cuda:1")
    assert code == 2
    assert "invalid choice: 'cuda:1' (choose from" in output
