"""Faults of two hosts, one after the other; prints the seconds of each recovery.

    PYTHONPATH=tests python tests/faults/two_hosts_faults.py                   # all faults, as root
    PYTHONPATH=tests python tests/faults/two_hosts_faults.py 0 6 --rounds 3    # some, by their number in FAULTS

A recovery lasts from the fault to the next checkpoint; where the cable stays cut, to the end of torchrun on both hosts.
A run that does not end as the undisturbed one is reported as failed.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from losspool.segmentation.runs.checkpoints import steps_in
from real_runs import PATIENCE, Processes, description, is_pending, outcome, ranks, until
from runs_for_tests import assert_equal, checkpoint, metrics, write_recipe
from two_hosts import TwoHosts, reason_to_skip

STEPS, EVERY, TIMEOUT = 60, 5, 5


class Scene:
    """A recipe, and the run that two processes on one host make of it."""

    def __init__(self, folder: Path, *settings: str, steps: int = STEPS) -> None:
        self.folder, self.steps = folder, steps
        self.recipe = write_recipe(
            folder, steps=steps, checkpoint_every=EVERY, validate_every=30, log_every=1, previews=0
        )
        self.options = ("method=lmp", f"train.timeout={TIMEOUT}", *settings, "--resume", "--out")
        with Processes() as processes:
            arguments = ("train", self.recipe, *self.options, folder / "undisturbed")
            code, output = outcome(processes.launch(*arguments, ranks=2))
        assert code == 0, output
        self.truth = folder / "undisturbed"

    def start(self, hosts, host, restarts=3, nodes="2"):
        return hosts.train(host, self.recipe, *self.options, hosts.folder / "run", restarts=restarts, nodes=nodes)

    def assert_undisturbed(self, out: Path) -> None:
        assert_equal(checkpoint(out, STEPS), checkpoint(self.truth, STEPS))
        assert metrics(out) == metrics(self.truth)

    def assert_close(self, out: Path) -> None:
        """The weights to 1e-5, and every line of the metrics once: with a process less, sums have another order."""
        ours, theirs = (checkpoint(each, self.steps)["model"] for each in (out, self.truth))
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, rtol=0, atol=1e-5)
        lines = [[(line["step"], line["split"]) for line in metrics(each)] for each in (out, self.truth)]
        assert lines[0] == lines[1]


def elastic_scene(folder: Path) -> Scene:
    """A run that is the same with one process and with two, and long enough for a host to join."""
    return Scene(folder, "model.name=tiny_model.build_plain", "train.global_batch=4", steps=300)


def newest(out: Path) -> int:
    return max(steps_in(out / "checkpoints"), default=0)


def reach(out: Path, step: int, *processes) -> None:
    """Wait for a checkpoint of this step or a later one."""
    assert until(lambda: newest(out) >= step or any(each.poll() is not None for each in processes))
    assert newest(out) >= step, [outcome(each)[1] for each in processes]


def ends(*processes) -> str:
    """What they said. All must end well."""
    found = [outcome(each) for each in processes]
    assert all(code == 0 for code, _ in found), "\n".join(output for _, output in found)
    return "\n".join(output for _, output in found)


def host_dies_and_comes_back(
    scene: Scene, folder: Path, share: bool = False, silently: bool = False, quick: bool = False
) -> float:
    """Host 1 is killed with -9. Without ``share``, each host has its own disk."""
    with TwoHosts(folder, share, quick) as hosts:
        out, running = hosts.disks[0] / "run", [scene.start(hosts, each) for each in (0, 1)]
        reach(out, 2 * EVERY, *running)
        hosts.kill(running[1], silently)
        began, before = time.monotonic(), newest(out)
        running[1] = scene.start(hosts, 1)
        reach(out, before + EVERY, *running)
        took = time.monotonic() - began
        said = ends(*running)
    assert "resumed at step" in said
    assert share or not (hosts.disks[1] / "run").exists()
    scene.assert_undisturbed(out)
    return took


def meeting_point_dies(scene: Scene, folder: Path) -> float:
    """Host 0 is killed, where the hosts meet: torchrun on host 1 ends by itself, and both are started again."""
    with TwoHosts(folder) as hosts:
        out, running = hosts.disks[0] / "run", [scene.start(hosts, each) for each in (0, 1)]
        reach(out, 2 * EVERY, *running)
        hosts.kill(running[0])
        began, before = time.monotonic(), newest(out)
        assert outcome(running[1])[0] != 0
        again = [scene.start(hosts, each) for each in (0, 1)]
        reach(out, before + EVERY, *again)
        took = time.monotonic() - began
        ends(*again)
    scene.assert_undisturbed(out)
    return took


def cable_is_cut_for_a_while(scene: Scene, folder: Path, seconds: float = 2.0 * TIMEOUT) -> float:
    """Longer than the timeout: the ranks give up, and are started again."""
    with TwoHosts(folder) as hosts:
        out, running = hosts.disks[0] / "run", [scene.start(hosts, each) for each in (0, 1)]
        reach(out, 2 * EVERY, *running)
        hosts.cut()
        began, before = time.monotonic(), newest(out)
        time.sleep(seconds)
        hosts.mend()
        reach(out, before + EVERY, *running)
        took = time.monotonic() - began
        said = ends(*running)
    assert "another process ended or did not answer within train.timeout" in said
    scene.assert_undisturbed(out)
    return took


def cable_stays_cut(scene: Scene, folder: Path, by_file: bool = False) -> float:
    """The ranks stop with a sentence, torchrun ends on both hosts, and one host goes on from what was saved.

    With ``by_file`` the hosts meet in a file. Otherwise TCP must give up before torchrun on host 1 can end.
    """
    with TwoHosts(folder, by_file=by_file) as hosts:
        if not by_file:
            hosts.limit_retries(4)
        out, running = hosts.disks[0] / "run", [scene.start(hosts, each, restarts=0) for each in (0, 1)]
        reach(out, 2 * EVERY, *running)
        hosts.cut()
        began = time.monotonic()
        assert until(lambda: all(each.poll() is not None for each in running), PATIENCE)
        took = time.monotonic() - began
        said = [outcome(each) for each in running]
    for code, text in said:
        assert code != 0, text
        assert "another process ended or did not answer within train.timeout = 5 seconds, after step" in text, text
    with Processes() as processes:
        ends(processes.launch("train", scene.recipe, *scene.options, out, ranks=2))
    scene.assert_undisturbed(out)
    return took


def host_joins_and_is_lost(scene: Scene, folder: Path) -> float:
    """``--nnodes 1:2``: host 0 trains alone, with host 1, and alone again once host 1 is killed."""
    with TwoHosts(folder, quick=True) as hosts:
        out, running = hosts.disks[0] / "run", [scene.start(hosts, 0, nodes="1:2")]
        reach(out, EVERY, *running)
        (alone,) = ranks(running[0]).values()
        os.kill(alone, signal.SIGSTOP)  # or it might have ended before host 1 has started
        running.append(scene.start(hosts, 1, nodes="1:2"))
        assert until(lambda: is_pending(alone, signal.SIGTERM))  # torchrun asks it to stop
        os.kill(alone, signal.SIGCONT)
        reach(out, newest(out) + 4 * EVERY, *running)
        assert description(out)["processes"] == 2
        hosts.kill(running.pop())
        began, before = time.monotonic(), newest(out)
        reach(out, before + EVERY, *running)
        took = time.monotonic() - began
        ends(*running)
    assert [change[1:] for change in description(out)["regrouped"]] == [[1, 2], [2, 1]]
    scene.assert_close(out)
    return took


FAULTS = {
    "host 1 is killed and comes back, each host has its disk": host_dies_and_comes_back,
    "host 1 is killed and comes back, one disk": partial(host_dies_and_comes_back, share=True),
    "host 1 loses power and comes back, one disk": partial(host_dies_and_comes_back, share=True, silently=True),
    "host 0, where they meet, is killed, and both are started again": meeting_point_dies,
    f"the cable is cut for {2 * TIMEOUT} s, train.timeout={TIMEOUT}": cable_is_cut_for_a_while,
    f"the cable stays cut, no restarts, train.timeout={TIMEOUT}, tcp_retries2=4": cable_stays_cut,
    f"the cable stays cut, no restarts, train.timeout={TIMEOUT}, store_type=file": partial(
        cable_stays_cut, by_file=True
    ),
    "--nnodes 1:2, host 1 joins and is killed": lambda _, folder: host_joins_and_is_lost(elastic_scene(folder), folder),
}


def main() -> int:
    """The number of rounds that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="*", type=int, help=f"0 to {len(FAULTS) - 1}; default: all.")
    parser.add_argument("--rounds", type=int, default=1, help="How often each fault is tried.")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        scene = Scene(Path(place))
        for number in arguments.faults or range(len(FAULTS)):
            name, fault = list(FAULTS.items())[number]
            for round_number in range(arguments.rounds):
                folder = Path(place) / f"{number}-{round_number}"
                folder.mkdir()
                try:
                    print(f"{number}: {name}: {fault(scene, folder):.1f} s", flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"{number}: {name}: failed: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(reason_to_skip() or main())
