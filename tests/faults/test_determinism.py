"""The same seed on the same machine gives the same run, in whichever process and with however many loaders."""

import json

import pytest

from real_runs import Processes, outcome
from runs_for_tests import assert_equal, checkpoint, write_recipe

STEPS = 40
RUNS = {"none": 0, "one": 1, "two": 2}


def lines(out):
    """The file's lines but for the times: the order of the keys counts, and every digit."""
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for entry in entries:
        del entry["time"]
    return [json.dumps(entry) for entry in entries]


def end(out):
    content = checkpoint(out, STEPS)
    config = content.pop("config")
    return content, [line for line in config.splitlines() if "workers" not in line]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trainings with loss max-pooling and aimed crops, one of them in a process with hashes of its own."""
    folder = tmp_path_factory.mktemp("determinism")
    # Crops are aimed by the IoU of nine steps ago: an order that depends on the loaders would show in what follows.
    recipe = write_recipe(folder, steps=STEPS, validate_every=20, checkpoint_every=20)
    with Processes() as processes:
        started = []
        for name, workers in RUNS.items():
            options = ("method=lmp", "sampling.mix=0.9", f"data.workers={workers}", "--out", folder / name)
            # An order that comes from a set would differ. A fork has the hashes of the process that it comes from.
            words = ("-m", "losspool", "train", recipe, *options)
            started.append(
                processes.python(*words, PYTHONHASHSEED="3")
                if name == "two"
                else processes.launch("train", recipe, *options)
            )
        for process in started:
            code, output = outcome(process)
            assert code == 0, output
    return folder


@pytest.mark.parametrize("name", list(RUNS)[1:])
def test_metrics_are_the_same_apart_from_times(runs, name):
    expected = lines(runs / "none")
    assert len(expected) == STEPS // 4 + STEPS // 20
    assert lines(runs / name) == expected


@pytest.mark.parametrize("name", list(RUNS)[1:])
def test_the_last_checkpoint_is_the_same_to_the_bit(runs, name):
    for got, expected in zip(end(runs / name), end(runs / "none"), strict=True):
        assert_equal(got, expected)


@pytest.mark.parametrize("name", list(RUNS)[1:])
def test_previews_are_the_same(runs, name):
    expected = sorted((runs / "none" / "previews").iterdir())
    assert expected
    for path in expected:
        assert (runs / name / "previews" / path.name).read_bytes() == path.read_bytes()
