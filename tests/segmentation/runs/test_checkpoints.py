"""Checkpoints are read whole or not at all, and never run anything."""

import multiprocessing
import os
import pickle
import re

import pytest
import torch

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.runs import checkpoints as checkpoint
from losspool.segmentation.runs.checkpoints import (
    checkpoint_path,
    newest_checkpoint,
    prune,
    read_checkpoint,
    write_checkpoint,
)

CONTENT = {
    "step": 7,
    "model": {
        "weight": torch.arange(6.0).view(2, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "n": torch.tensor(3),
    },
    "lists": [1, 2.5, None, "text", (True, [])],
}


class Payload:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_round_trip(tmp_path):
    path = write_checkpoint(tmp_path, 7, CONTENT)
    assert path.name == "step-0000007.pt"
    content = read_checkpoint(path)
    assert content["lists"] == CONTENT["lists"]
    for key, value in CONTENT["model"].items():
        assert torch.equal(content["model"][key], value)
    assert "content" in torch.load(path, weights_only=True)  # readable with torch alone
    assert os.listdir(tmp_path) == [path.name]


DAMAGES = {
    "empty": (lambda path: path.write_bytes(b""), "the checkpoint is damaged"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "the checkpoint is damaged"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(Payload())), "damaged, or asks to run code"),
    "torch pickle": (lambda path: torch.save({"format": 1, "x": Payload()}, path), "damaged, or asks to run code"),
    "something else": (lambda path: torch.save({"weight": torch.ones(2)}, path), "not a checkpoint of losspool"),
    "other format": (
        lambda path: torch.save({"format": 99, "checksum": "", "content": {}}, path),
        "a checkpoint of format 99; this version reads format 1",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_named_and_nothing_runs(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = write_checkpoint(tmp_path, 7, CONTENT)
    change, reported = DAMAGES[kind]
    change(path)
    with pytest.raises(UserError, match=re.escape(reported)) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("changed", ["tensor", "number"])
def test_one_changed_bit_is_noticed(tmp_path, changed):
    path = write_checkpoint(tmp_path, 7, CONTENT)
    stored = torch.load(path, weights_only=True)
    if changed == "tensor":
        stored["content"]["model"]["weight"][1, 2] = 5.000001
    else:
        stored["content"]["step"] = 8
    torch.save(stored, path)
    with pytest.raises(UserError, match="its checksum is wrong"):
        read_checkpoint(path)


def test_the_next_older_good_one_is_used(tmp_path, capsys):
    for step in (5, 10, 15):
        write_checkpoint(tmp_path, step, {"step": step})
    checkpoint_path(tmp_path, 15).write_bytes(b"")
    checkpoint_path(tmp_path, 10).write_bytes(b"rubbish")
    assert newest_checkpoint(tmp_path)["step"] == 5
    reported = " ".join(capsys.readouterr().err.split())
    assert reported.count("skipped:") == 2
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_pruning(tmp_path):
    for step in range(1, 9):
        write_checkpoint(tmp_path, step, {})
    (tmp_path / ".step-0000009.pt.77.partial").write_bytes(b"a killed writer left this")
    prune(tmp_path, step=7, last=2, keep=[3])
    kept = ["step-0000003.pt", "step-0000006.pt", "step-0000007.pt", "step-0000008.pt"]  # 8 is not of this run's past
    assert sorted(os.listdir(tmp_path)) == kept


def test_a_full_disk_leaves_the_old_one(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path, 7, CONTENT)
    before = path.read_bytes()

    def full(content, partial):
        partial.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    with pytest.raises(UserError, match=re.escape(f"{path}: cannot be written (No space left on device)")):
        write_checkpoint(tmp_path, 7, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_a_killed_writer_leaves_no_checkpoint(tmp_path):
    real = torch.save

    def write():
        torch.save = lambda content, partial: (real(content, partial), os._exit(9))
        write_checkpoint(tmp_path, 3, {})

    writer = multiprocessing.get_context("fork").Process(target=write)
    writer.start()
    writer.join()
    assert writer.exitcode == 9
    assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    assert newest_checkpoint(tmp_path) is None
