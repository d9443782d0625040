"""Runners of grids."""

import pytest

from grid_runs import Runner
from real_runs import Processes


@pytest.fixture
def start():
    """Starts a runner; nothing of it outlives the test."""
    with Processes() as processes:
        yield lambda *arguments, **environment: Runner(processes, *arguments, **environment)
