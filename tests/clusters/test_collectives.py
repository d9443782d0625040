"""What two ranks send each other with scope="global"; tests/test_many_ranks.py simulates 1,024 of them."""

import json
import os

import pytest

from real_runs import Processes, outcome


@pytest.fixture(scope="module")
def collectives(tmp_path_factory):
    """Bytes of the collectives of each of two ranks."""
    with open(os.devnull, "w") as nowhere, Processes() as processes:
        words = ("scripts.count_collectives", 2, tmp_path_factory.mktemp("ranks") / "meeting-point")
        started = [
            processes.fork(words[0], rank, *words[1:], errors=nowhere, GLOO_SOCKET_IFNAME="lo") for rank in (0, 1)
        ]
        return [json.loads(outcome(each)[1]) for each in started]


def test_the_search_takes_two_collectives_and_the_check_of_arguments_one(collectives):
    for found in collectives:
        assert found == {"all_gather": [1025], "all_reduce": [8 * (2**17 + 2 + 2), 8 * (2**17 + 1 + 4)]}
