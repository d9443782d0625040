"""scope="global" with kernels: several processes against one, at most four exchanges, the same bits on all ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parents[1] / "scripts" / "kernel_rank.py"
RANKS = 2


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    meeting_point = tmp_path_factory.mktemp("ranks") / "meeting-point"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    started = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(RANKS), str(meeting_point)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [{line["job"]: line for line in map(json.loads, output.splitlines())} for output in outputs]


@pytest.mark.parametrize("job", ["cross_entropy", "upsampled", "max_pool", "void rank", "empty rank", "trimmed"])
def test_ranks_equal_one_process(job, heard):
    found = [rank[job] for rank in heard]
    for line in found:
        assert line["error"] <= 1e-6, line
        assert line["exchanges"] == (6 if job == "trimmed" else 4), line  # two find the threshold
    assert len({line["bits"] for line in found}) == 1, "every rank has the same loss, α and τ, to the bit"


def test_a_bad_label_on_one_rank_is_refused_on_all(heard):
    for rank in heard:
        assert "losspool: target has labels" in rank["bad label"]["refused"]
