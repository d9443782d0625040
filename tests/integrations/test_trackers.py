"""The trainer logs to the real W&B (offline) and MLflow (on a local store), where these are installed."""

import json
import struct
import time

import pytest

from runs_for_tests import metrics, train, write_recipe

CLASSES = ["soil", "weed", "crop plant"]
SOME = ("train/loss", "train/alpha", "train/saturated", "train/mass/weed", "val/miou", "val/iou/crop plant")
IMAGES = {(step, name) for step in (6, 12) for name in ("previews/00", "weights/00")}


def logged(out, name):
    """One number of metrics.jsonl by step."""
    split, key, *label = name.split("/")
    lines = {line["step"]: line[key] for line in metrics(out) if line["split"] == split}
    return {step: value[CLASSES.index(label[0])] if label else value for step, value in lines.items()}


def trained(tmp_path, tracker):
    """The folder of a run that was resumed in the middle."""
    out, recipe = tmp_path / "run", write_recipe(tmp_path, steps=6)
    train(recipe, out, f"train.trackers=[{tracker}]")
    time.sleep(1.1)  # W&B names its folder by id and second
    train(recipe, out, f"train.trackers=[{tracker}]", "train.steps=12", resume=True)
    return out


def wandb_records(path):
    """The records of W&B's file, in LevelDB's log format: blocks of 32 KiB, each record with a header of 7 bytes."""
    content, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (left := -place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    out, found, ids = trained(tmp_path, "wandb"), {}, set()
    for path in sorted(out.glob("wandb/offline-run-*/run-*.wandb")):
        for content in wandb_records(path):
            record = wandb_internal_pb2.Record.FromString(content)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                found[record.history.step.num, name] = json.loads(item.value_json)
    for name in SOME:
        assert {step: value for (step, key), value in found.items() if key == name} == pytest.approx(logged(out, name))
    images = {(step, name) for step, name in found if name.endswith("/_type")}
    assert images == {(step, f"{name}/_type") for step, name in IMAGES}
    assert len(ids) == 1


def test_mlflow_on_a_local_store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # databases need more than mlflow-skinny
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "fields")
    out, client = trained(tmp_path, "mlflow"), mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("fields").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["loss.name"]) == ("run", "FINISHED", "lmp")
    for name in SOME:
        history = client.get_metric_history(run.info.run_id, name)
        assert {each.step: each.value for each in history} == pytest.approx(logged(out, name))
    images = [file.path.split("/")[1].split("+") for file in client.list_artifacts(run.info.run_id, "images")]
    assert {(int(step), name.replace("~", "/")) for name, _, step, *_ in images} == IMAGES
