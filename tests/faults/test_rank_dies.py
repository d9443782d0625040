"""One of two ranks is killed under torchrun with restarts: training resumes and ends with the undisturbed bits."""

import pytest

from losspool.segmentation.runs.checkpoints import steps_in
from real_runs import kill, outcome, ranks, until
from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe

STEPS, EVERY = 60, 5


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_and_restarted(launch, tmp_path, victim):
    recipe = write_recipe(tmp_path, steps=STEPS, checkpoint_every=EVERY, validate_every=30, log_every=1, previews=0)
    truth, out = tmp_path / "undisturbed", tmp_path / "killed"

    def start(folder):
        return launch("train", recipe, "method=lmp", "--out", folder, "--resume", processes=2, restarts=2)

    code, output = outcome(start(truth))
    assert code == 0, output
    process = start(out)
    # Whichever is there when it is looked: older ones are deleted meanwhile.
    assert until(lambda: max(steps_in(out / "checkpoints"), default=0) >= 2 * EVERY or process.poll() is not None)
    kill(ranks(process)[victim])
    code, output = outcome(process)
    assert code == 0, output
    assert "resumed at step" in output
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)
    assert not process.family()
