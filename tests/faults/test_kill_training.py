"""Killed at random moments: five of what kill_training.py does fifty times, in a process that forks safely."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_killed_trainings_end_with_the_bits_of_an_undisturbed_one():
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(here / "kill_training.py"), "--kills", "5"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "5 of 5 ended with the bits of an undisturbed run" in ended.stdout
    assert int(re.search(r"at most (\d+) steps were repeated", ended.stdout)[1]) <= 6
