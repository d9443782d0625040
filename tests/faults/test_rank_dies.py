"""Two ranks under torchrun, killed or stopped: training resumes and ends with the bits of an undisturbed run."""

import signal

import pytest

from losspool.segmentation.prediction.scoring import score
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.runs.checkpoints import steps_in
from real_runs import Processes, kill, outcome, ranks, until
from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe

STEPS, EVERY = 120, 5
OPTIONS = ("method=lmp",)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A recipe, and the run that it makes where nobody dies."""
    folder = tmp_path_factory.mktemp("truth")
    recipe = write_recipe(folder, steps=STEPS, checkpoint_every=EVERY, validate_every=60, log_every=1, previews=0)
    with Processes() as processes:  # forked: the launcher must not matter, and torchrun's ranks import for seconds
        code, output = outcome(processes.launch("train", recipe, *OPTIONS, "--out", folder / "undisturbed", ranks=2))
    assert code == 0, output
    return recipe, folder / "undisturbed"


def reach(process, out, step):
    """Wait for a checkpoint of this step or a later one: older ones are deleted meanwhile."""
    assert until(lambda: max(steps_in(out / "checkpoints"), default=0) >= step or process.poll() is not None)


def test_either_rank_is_killed_and_both_restarted_then_stopped_and_resumed(undisturbed, torchrun, launch, tmp_path):
    (recipe, truth), out = undisturbed, tmp_path / "disturbed"
    arguments = ("train", recipe, *OPTIONS, "--out", out, "--resume")
    process = torchrun(*arguments, restarts=2)
    reach(process, out, 2 * EVERY)
    killed = ranks(process)
    kill(killed[1])
    assert until(lambda: not set(killed.values()) & set(ranks(process).values()))
    reach(process, out, max(steps_in(out / "checkpoints")) + 2 * EVERY)
    kill(ranks(process)[0])
    reach(process, out, max(steps_in(out / "checkpoints")) + 2 * EVERY)
    process.send_signal(signal.SIGTERM)
    code, output = outcome(process)
    assert code != 0
    assert output.count("resumed at step") == 2
    assert "stopped at step" in output
    assert not process.family()
    code, output = outcome(launch(*arguments, ranks=2))
    assert code == 0, output
    assert_equal(checkpoint(out, STEPS), checkpoint(truth, STEPS))
    assert metrics(out) == metrics(truth)
    # BatchNorm was trained apart on the two ranks: the score must be that of the network in the checkpoint.
    trained = TrainedRun.open(out, ["tiny_model.build"]).load(STEPS)
    scores = score(trained.predictor(trained.config.evaluate), trained.config.data.open("val"), range(3), lambda: None)
    assert metrics(out)[-1]["iou"] == scores.summary()["iou"]
