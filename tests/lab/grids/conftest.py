"""Runners of grids."""

import pytest

from real_runs import Processes


@pytest.fixture
def start():
    """Starts a runner; nothing of it outlives the test."""
    from grid_runs import Runner  # not above, as in tests/lab/conftest.py

    with Processes() as processes:
        yield lambda *arguments, **environment: Runner(processes, *arguments, **environment)
