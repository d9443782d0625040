"""Two hosts that train together, each with a disk of its own; other faults of theirs are in two_hosts_faults.py."""

import pytest

from faults.two_hosts_faults import Scene, host_dies_and_comes_back
from two_hosts import reason_to_skip


@pytest.fixture
def undisturbed(tmp_path):
    if reason := reason_to_skip():
        pytest.skip(reason)
    return Scene(tmp_path)


def test_a_host_is_killed_and_comes_back(undisturbed, tmp_path):
    """The run ends with the bits of two processes on one host, and all of it on the disk of rank 0."""
    host_dies_and_comes_back(undisturbed, tmp_path, quick=True)
