"""scope="global": k processes under DDP step like one with the whole batch."""

import json
import os

import pytest

from real_runs import Processes, outcome


@pytest.fixture(scope="module", params=[2, 3], ids="{} ranks".format)
def heard(request, tmp_path_factory):
    """What each rank heard in each job: ``heard[job][rank]``. A rank that hangs fails by the time limit."""
    ranks, meeting_point = request.param, tmp_path_factory.mktemp("ranks") / "meeting-point"
    with open(os.devnull, "w") as nowhere, Processes() as processes:
        options = {"errors": nowhere, "GLOO_SOCKET_IFNAME": "lo"}
        started = [
            processes.fork("scripts.global_worker", rank, ranks, meeting_point, **options) for rank in range(ranks)
        ]
        outputs = [outcome(process)[1] for process in started]
    found: dict[str, dict[int, str]] = {}
    for rank, output in enumerate(outputs):
        for line in map(json.loads, output.splitlines()):
            found.setdefault(line["job"], {})[rank] = line["heard"]
    return found


@pytest.mark.parametrize("job", ["uneven", "void", "empty", "max_pool", "upsampled", "trimmed"])
def test_processes_equal_one_process_with_the_whole_batch(job, heard):
    assert set(heard[job].values()) == {"ok"}, heard[job]


def test_a_subgroup_pools_by_itself(heard):
    assert set(heard["subgroup"].values()) == {"ok"}, heard["subgroup"]


@pytest.mark.parametrize(
    ("job", "kind", "sentence"),
    [
        ("bad label", "ValueError", "target holds the label 77"),
        ("bad shape", "ValueError", "target must have shape"),
        ("bad setting", "TypeError", "m must be"),
    ],
)
def test_a_mistake_on_one_rank_raises_on_all(job, kind, sentence, heard):
    assert heard[job][1].startswith(f"{kind}: {sentence}")
    for rank in set(heard[job]) - {1}:
        assert heard[job][rank].startswith(f"ValueError: rank 1 of the group: {sentence}")


def test_ranks_that_disagree_hear_of_it(heard):
    for text in heard["bad agreement"].values():
        assert text.startswith("ValueError: the ranks of the group disagree: rank 0 has p = 1.3, m = 0.25")
        assert "rank 1 has p = 1.3, m = 0.5" in text
