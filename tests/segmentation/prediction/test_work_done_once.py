"""Counts of what is expensive: reading a config, reading a checkpoint, a pass through the network."""

import pytest

from losspool.segmentation.prediction import predictor, trained_run
from trained_runs import small_config, write_run

TRUST = "--trust=tiny_model.build"


@pytest.fixture
def counted(monkeypatch):
    """Returns a function that counts the calls of a module's or class's attribute."""

    def count(owner, name):
        calls, real = [], getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **kwargs: calls.append(args) or real(*args, **kwargs))
        return calls

    return count


def test_evaluate_reads_the_config_once_and_only_the_checkpoints_it_scores(tmp_path, command, counted):
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"), steps=(5, 10, 12))
    configs, checkpoints = counted(trained_run, "load_config"), counted(trained_run, "read_checkpoint")
    assert command("evaluate", run.path, "--checkpoint", "5,12", TRUST)[0] == 0
    assert (len(configs), len(checkpoints)) == (1, 2)
    assert command("evaluate", run.path, "--checkpoint", "best", TRUST)[0] == 0
    assert (len(configs), len(checkpoints)) == (2, 3)


@pytest.mark.parametrize(("options", "passes"), [((), 1), (("--flip",), 3)])
def test_a_weight_map_and_its_prediction_share_a_pass(tmp_path, command, counted, options, passes):
    """With --flip the prediction averages two passes, and the weights need a plain one."""
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"))
    calls = counted(predictor.Predictor, "_pass")
    words = ("predict", run.path, "--out", tmp_path / "out", "--split=val", "--name=000", "--weights", TRUST)
    assert command(*words, *options)[0] == 0
    assert len(calls) == passes
