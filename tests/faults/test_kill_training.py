"""Killed at random moments: three of what kill_training.py does fifty times, in a process that forks safely."""

import re

from real_runs import Processes, outcome


def test_killed_trainings_end_with_the_bits_of_an_undisturbed_one():
    with Processes() as processes:
        code, output = outcome(processes.fork("faults.kill_training", "--kills", "3"), 300)
    assert code == 0, output
    assert "3 of 3 ended with the bits of an undisturbed run" in output
    assert int(re.search(r"at most (\d+) steps were repeated", output)[1]) <= 6
