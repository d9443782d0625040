"""scope="global": k processes under DDP step like one with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "scripts" / "global_worker.py"


def launch(job: str, ranks: int, tmp_path: Path) -> list[subprocess.CompletedProcess]:
    """Run the worker on every rank; a rank that hangs fails the test by its time limit."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [sys.executable, str(WORKER), job, str(rank), str(ranks), str(tmp_path / "meeting-point")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        results = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *result)
        for process, result in zip(started, results, strict=True)
    ]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("job", ["uneven", "void", "empty", "max_pool", "upsampled"])
def test_processes_equal_one_process_with_the_whole_batch(job, ranks, tmp_path):
    for result in launch(job, ranks, tmp_path):
        assert result.returncode == 0, result.stderr[-2000:]
        assert "ok" in result.stdout


def test_a_bad_label_on_one_rank_raises_on_all(tmp_path):
    results = launch("bad-label", 2, tmp_path)
    assert "ValueError: target holds the label 77" in results[1].stdout
    assert "ValueError: rank 1 of the group: target holds the label 77" in results[0].stdout


def test_a_wrong_shape_on_one_rank_raises_on_all(tmp_path):
    results = launch("bad-shape", 2, tmp_path)
    assert "ValueError: target must have the shape" in results[1].stdout
    assert "ValueError: rank 1 of the group: target must have the shape" in results[0].stdout


def test_a_bad_setting_on_one_rank_raises_on_all(tmp_path):
    results = launch("bad-setting", 2, tmp_path)
    assert "TypeError: m must be" in results[1].stdout
    assert "ValueError: rank 1 of the group: m must be" in results[0].stdout


def test_ranks_that_disagree_hear_of_it(tmp_path):
    for result in launch("bad-agreement", 2, tmp_path):
        assert "ValueError: the ranks of the group disagree: rank 0 has p = 1.3, m = 0.25" in result.stdout
        assert "rank 1 has p = 1.3, m = 0.5" in result.stdout


def test_a_subgroup_pools_by_itself(tmp_path):
    for result in launch("subgroup", 3, tmp_path):
        assert result.returncode == 0, result.stderr[-2000:]
        assert "ok" in result.stdout
