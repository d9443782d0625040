"""One of two ranks is killed under torchrun with restarts: training resumes and ends with the undisturbed bits."""

import pytest

from losspool.segmentation.runs.checkpoints import steps_in
from real_runs import Processes, kill, outcome, ranks, until
from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe

STEPS, EVERY = 60, 5


def start(launch, recipe, folder):
    return launch("train", recipe, "method=lmp", "--out", folder, "--resume", processes=2, restarts=2)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A recipe, and the run that it makes where nobody dies."""
    folder = tmp_path_factory.mktemp("truth")
    recipe = write_recipe(folder, steps=STEPS, checkpoint_every=EVERY, validate_every=30, log_every=1, previews=0)
    with Processes() as processes:
        code, output = outcome(start(processes.launch, recipe, folder / "undisturbed"))
    assert code == 0, output
    return recipe, folder / "undisturbed"


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_and_restarted(undisturbed, launch, tmp_path, victim):
    (recipe, truth), out = undisturbed, tmp_path / "killed"
    process = start(launch, recipe, out)
    # Whichever is there when it is looked: older ones are deleted meanwhile.
    assert until(lambda: max(steps_in(out / "checkpoints"), default=0) >= 2 * EVERY or process.poll() is not None)
    kill(ranks(process)[victim])
    code, output = outcome(process)
    assert code == 0, output
    assert "resumed at step" in output
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)
    assert not process.family()
