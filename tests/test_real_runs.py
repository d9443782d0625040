"""The starter of processes keeps its word: nothing that a test started outlives it, however that ends."""

import pytest

from real_runs import Processes, alive, until

STARTS_OTHERS = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
for own in (False, True):
    subprocess.Popen(sleep, start_new_session=own)
print("started", flush=True)
time.sleep(600)
"""


def fail(started, orphaned):
    with Processes() as processes:
        process = processes.python("-c", STARTS_OTHERS)
        assert process.stdout.readline() == "started\n"
        assert until(lambda: len(process.family()) == 3)
        started += [process, *process.family()]
        if orphaned:
            process.kill()
            process.wait()
        raise InterruptedError("a test fails")


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_test_that_fails_leaves_nothing(orphaned):
    started = []
    with pytest.raises(InterruptedError):
        fail(started, orphaned)
    process, *family = started
    assert not any(map(alive, family))
    assert process.returncode is not None
    assert process.stdout.closed
