"""A published run begins as it once did: from its stored config, on the real data. All of it would take ten minutes."""

import json
from pathlib import Path

import pytest

from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs.run_log import MetricsFile
from losspool.segmentation.training.trainer import Trainer
from shared_data import shared_data

RUN = Path(__file__).parents[2] / "results/camvid-strong/rates/lmp_loss_only-lr0.02-s100"


class StoppedError(Exception):
    """With what the run wrote first."""


def test_the_first_steps_of_a_published_run(tmp_path, monkeypatch):
    overrides = [f"data.root={shared_data('camvid')}", f"data.cache={tmp_path / 'cache'}", "data.workers=0"]
    overrides += [f"model.weights={shared_data('weights', 'mobilenet_v2-b0353104.pth')}"]

    def stop(self, entry):
        raise StoppedError(entry)

    monkeypatch.setattr(MetricsFile, "append", stop)
    with pytest.raises(StoppedError) as caught:
        Trainer(load_config(RUN / "config.yaml", overrides), tmp_path / "run").run()
    (found,) = caught.value.args
    expected = json.loads((RUN / "metrics.jsonl").read_text().splitlines()[0])
    assert found["step"] == expected["step"] == 10
    # To the last digit on the same processor; another one sums in another order, and ten steps enlarge that, most of
    # all in the IoU of a class that is just being learnt.
    for key in ("loss", "alpha", "saturated", "lr", "miou", "mass", "iou", "grad_norm"):
        assert found[key] == pytest.approx(expected[key], rel=3e-2, abs=2e-2 if key == "iou" else 5e-3), key
