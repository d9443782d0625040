"""Kill a short training at random moments, resume it, and compare with an undisturbed one.

    PYTHONPATH=tests python tests/faults/kill_training.py --kills 50

Each trial is a training of its own, killed once with SIGKILL at a random moment between its start and its end.
Writing a checkpoint is slowed down, so that many of the moments fall into it. Afterwards every checkpoint must be
readable, no more than one interval of steps may be lost, and the resumed training must end with the same bits:
weights, optimiser, sampler, metrics.
"""

import argparse
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs import checkpoints
from losspool.segmentation.runs.checkpoints import checkpoint_path, read_checkpoint, steps_in
from losspool.segmentation.training.trainer import Trainer
from real_runs import description
from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe

STEPS, INTERVAL = 42, 6
PIECES, PAUSE = 8, 0.03
"""A checkpoint is written in this many pieces, with so many seconds between them."""


@dataclass
class Findings:
    """Over all trials."""

    kills: int = 0
    in_a_write: int = 0
    before_the_first_checkpoint: int = 0
    most_repeated: int = 0
    equal: int = 0


def slow_save(content, file) -> None:
    buffer = io.BytesIO()
    save(content, buffer)
    data = buffer.getvalue()
    size = -(-len(data) // PIECES)
    for start in range(0, len(data), size):
        file.write(data[start : start + size])
        file.flush()
        time.sleep(PAUSE)


save = torch.save


def start(recipe: Path, out: Path) -> int:
    """A training in a process of its own; returns its number. Forked: the imports are done."""
    number = os.fork()
    if number:
        return number
    try:
        os.setsid()
        checkpoints.torch.save = slow_save
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # fifty trainings have nothing new to say
        Trainer(load_config(recipe, ["method=lmp"]), out, resume=True).run()
        os._exit(0)
    finally:
        os._exit(1)


def finish(number: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def last_logged(out: Path) -> int:
    """The last step whose line was written, torn lines aside."""
    steps = [0]
    path = out / "metrics.jsonl"
    for line in path.read_text().split("\n") if path.exists() else ():
        try:
            steps.append(json.loads(line)["step"])
        except ValueError:
            continue
    return max(steps)


def trial(recipe: Path, out: Path, moment: float, findings: Findings) -> None:
    number = start(recipe, out)
    time.sleep(moment)
    os.kill(number, signal.SIGKILL)
    if finish(number) == 0:
        return  # it had ended before: no kill, and no trial
    findings.kills += 1
    folder = out / "checkpoints"
    findings.in_a_write += any(folder.glob(".*.partial"))
    found = steps_in(folder)
    for step in found:
        read_checkpoint(checkpoint_path(folder, step))  # raises if it is not whole
    findings.before_the_first_checkpoint += not found
    findings.most_repeated = max(findings.most_repeated, last_logged(out) - max(found, default=0))
    assert finish(start(recipe, out)) == 0, f"{out}: it could not be resumed"
    assert not list(folder.glob(".*.partial")), f"{out}: what the killed writer left is still there"


def run(kills: int, seed: int, room: Path) -> Findings:
    """Trials until ``kills`` of them were killed. Raises AssertionError at the first that differs."""
    torch.set_num_threads(1)
    recipe = write_recipe(room, steps=STEPS, checkpoint_every=INTERVAL, validate_every=21, log_every=1)
    undisturbed = room / "undisturbed"
    began = time.monotonic()
    assert finish(start(recipe, undisturbed)) == 0
    whole = time.monotonic() - began
    truth, lines = checkpoint(undisturbed, STEPS), metrics(undisturbed)
    findings, chance, number = Findings(), random.Random(seed), 0
    while findings.kills < kills:
        out = room / f"trial-{number}"
        before = findings.kills
        trial(recipe, out, chance.uniform(0, whole), findings)
        number += 1
        if findings.kills > before:
            assert_equal(checkpoint(out, STEPS), truth, str(out))
            assert metrics(out) == lines, out
            assert description(out)["status"] == "finished", out
            findings.equal += 1
        assert number < 4 * kills + 20, "most trainings ended before they could be killed"
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        found = run(options.kills, options.seed, Path(room))
    print(f"{found.equal} of {found.kills} ended with the bits of an undisturbed run")
    print(f"{found.in_a_write} were killed while a checkpoint was being written; every checkpoint could be read")
    print(f"{found.before_the_first_checkpoint} were killed before the first checkpoint")
    print(f"at most {found.most_repeated} steps were repeated; checkpoints are {INTERVAL} steps apart")
    assert found.equal == found.kills
    assert found.most_repeated <= INTERVAL


if __name__ == "__main__":
    main()
