"""One of two ranks is killed under torchrun with restarts: training resumes and ends with the undisturbed bits."""

import os
import signal
import time
from pathlib import Path

import pytest

from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe

STEPS = 60
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2", "-m", "losspool")


def ranks_of(out: Path) -> dict[str, int]:
    """Rank -> process number, of the trainings that name the folder; loader workers are not among them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
            variables = dict(
                each.split("=", 1) for each in (path / "environ").read_bytes().decode().split("\0") if "=" in each
            )
        except (OSError, UnicodeDecodeError):
            continue  # it has just ended
        if str(out) in words and "RANK" in variables:
            found[variables["RANK"]] = int(path.name)
    return found


@pytest.mark.parametrize("victim", ["0", "1"])
def test_killed_and_restarted(losspool, tmp_path, victim):
    recipe = write_recipe(tmp_path, steps=STEPS, checkpoint_every=5, validate_every=30, log_every=1, previews=0)
    truth, out = tmp_path / "undisturbed", tmp_path / "killed"
    process = losspool("train", recipe, "method=lmp", "--out", truth, "--resume", launcher=TORCHRUN)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    process = losspool("train", recipe, "method=lmp", "--out", out, "--resume", launcher=TORCHRUN)
    until = time.monotonic() + 120
    while not (out / "checkpoints" / "step-0000010.pt").exists():
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(ranks_of(out)[victim], signal.SIGKILL)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "resumed at step" in output
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)
    assert not ranks_of(out)
