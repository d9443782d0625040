"""What is compared with what, and the bar for each."""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import contestants
import memory
import workloads
from measure import Step, compare, interleave
from report import Report, Row

MIB = 2.0**20
FULL = "cross_entropy 2×19×550×550"
INTERPOLATE = "F.interpolate + F.cross_entropy"


class Effort(NamedTuple):
    """How much to measure."""

    rounds: int
    memory_rounds: int  # processes per contestant
    threads: int

    def part(self, divisor: int) -> Effort:
        """Fewer rounds, for what is slow."""
        return self._replace(rounds=max(self.rounds // divisor, 3))


# One thread; the most that ours may take, over `F.cross_entropy`.
SIZES = {
    "8×5×32×32": 6.0,
    "4×19×64×64": 2.0,
    "4×19×128×128": 1.2,
    "2×19×256×256": 1.05,
    "32×2×64×64": 3.0,
    "2×150×128×128": 1.0,
    "512×1000": 2.0,
    "512×32000": 1.0,
}


def cross_entropy(effort: Effort, report: Report) -> None:
    _compare_losses(report, effort, "full", "losspool", {"torch": 0.75}, FULL, ["F.cross_entropy"])
    _compare_memory(report, effort, "full", ("losspool", "torch"), (FULL, "F.cross_entropy"), 0.75)


def sizes(effort: Effort, report: Report) -> None:
    """Small and middle sizes on one thread."""
    for name, bar in SIZES.items():
        shape = workloads.WORKLOADS[name].logits
        repeats = min(max(10_000_000 // math.prod(shape), 1), 50)
        work = f"cross_entropy {name}, one thread"
        alone = effort._replace(threads=1)
        _compare_losses(report, alone, name, "losspool", {"torch": bar}, work, ["F.cross_entropy"], repeats)


def probabilities(effort: Effort, report: Report) -> None:
    """Class probabilities as targets."""
    work, ours = f"{FULL}, class probabilities", "losspool probabilities"
    bars = {"torch probabilities": 1.2}
    _compare_losses(report, effort, "probabilities", ours, bars, work, ["F.cross_entropy"])


def busy(effort: Effort, report: Report) -> None:
    """Beside a process that keeps a core busy."""
    neighbour = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    neighbour.start()
    try:
        work = f"{FULL}, busy neighbour"
        _compare_losses(report, effort, "full", "losspool", {"torch": 1.0}, work, ["F.cross_entropy"])
    finally:
        neighbour.kill()
        neighbour.join()


def _spin() -> None:
    while True:
        pass


def compiled(effort: Effort, report: Report) -> None:
    bars = {"torch": 0.65, "torch compiled": 1.05}
    against = ["F.cross_entropy", "F.cross_entropy, compiled"]
    _compare_losses(report, effort, "full", "losspool compiled", bars, f"{FULL}, compiled", against)


def upsampled_550(effort: Effort, report: Report) -> None:
    _upsampled(report, effort, "upsampled-550", "upsampled 2×19×69×69 to 550×550", 0.15)


def upsampled_2048(effort: Effort, report: Report) -> None:
    _upsampled(report, effort.part(2), "upsampled-2048", "upsampled 1×19×128×256 to 1024×2048", 0.10)


def solver(effort: Effort, report: Report) -> None:
    """Solving and weighting, against sorting alone."""
    for shape in ((1, 605_000), (2, 302_500)):
        steps = {"ours": Step(contestants.pooling_step, shape), "sort": Step(contestants.sorting_step, shape)}
        times = _times(steps, effort)
        work = f"pooling_weights {shape[0]}×{shape[1]:,}"
        _add_time(report, work, "torch.sort", times["ours"], times["sort"], 0.15)


def scaling(effort: Effort, report: Report) -> None:
    """The time per pixel of a hundred million pixels, against that of a million."""
    pixels = {"large": 10**8, "small": 10**6}
    repeats = {"large": 1, "small": 10}  # one call on a million pixels is too short to be steady
    steps = {name: Step(contestants.pooling_step, (1, pixels[name]), repeats[name]) for name in pixels}
    times = _times(steps, effort.part(4), warmup=1)
    large, small = ([1e9 * seconds / pixels[name] for seconds in times[name]] for name in pixels)
    titles = ("pooling_weights 10⁸ pixels", "itself, 10⁶ pixels", "time/pixel", "ns")
    report.rows.append(Row(*titles, compare(large, small), len(large), 1.3))


def peers(effort: Effort, report: Report) -> None:
    """Every other loss is to be slower than ours."""
    _check_sort_based()
    bars = dict.fromkeys(contestants.PEERS, 1.0)
    _compare_losses(report, effort.part(2), "full", "losspool", bars, FULL, contestants.PEERS)


def data(effort: Effort, report: Report) -> None:
    """What the sampler and the loader cost, beside what no loader can do without."""
    try:
        import data_steps  # needs losspool[train], which the peers' environment has not
    except ImportError as error:
        report.skipped["data"] = str(error)
        return
    steps = {"crop": Step(data_steps.crop_step, (), 4), "decode": Step(data_steps.decode_step, (), 4)}
    times = _times(steps, effort)
    work = "draw, read, cut a 550×550 crop of 2048×1024"
    _add_time(report, work, "Pillow's decode of both files", times["crop"], times["decode"], 1.3)
    times = _times({"draw": Step(data_steps.draw_step, (), 100)}, effort)
    _add_time(report, "one draw", "0.2 ms", times["draw"], [0.0002] * len(times["draw"]), 1.0)
    steps = {"iou": Step(data_steps.running_iou_step, (), 10), "step": Step(data_steps.training_step, ())}
    times = _times(steps, effort.part(2))
    _add_time(report, "running IoU", "a training step of the CamVid recipe", times["iou"], times["step"], 0.03)
    outside, whole = data_steps.trainer_times(effort.rounds)
    _add_time(report, "data, sampler, counting, logging", "a whole step of the CamVid recipe", outside, whole, 0.05)


EXPERIMENTS: dict[str, Callable[[Effort, Report], None]] = {
    "cross_entropy": cross_entropy,
    "sizes": sizes,
    "probabilities": probabilities,
    "busy": busy,
    "compiled": compiled,
    "upsampled_550": upsampled_550,
    "upsampled_2048": upsampled_2048,
    "solver": solver,
    "scaling": scaling,
    "peers": peers,
    "data": data,
}


def _upsampled(report: Report, effort: Effort, workload: str, work: str, memory_bar: float) -> None:
    ours, theirs = "losspool upsampled", "torch upsampled"
    _compare_losses(report, effort, workload, ours, {theirs: 0.75}, work, [INTERPOLATE])
    _compare_memory(report, effort, workload, (ours, theirs), (work, INTERPOLATE), memory_bar)


def _compare_losses(
    report: Report,
    effort: Effort,
    workload: str,
    ours: str,
    bars: dict[str, float],
    work: str,
    against: Sequence[str],
    repeats: int = 1,
) -> None:
    """Time forward and backward of one contestant of ours and of all others, in the same rounds."""
    steps = {name: Step(contestants.training_step, (name, workload), repeats) for name in (ours, *bars)}
    times, failures = interleave(steps, effort.rounds, effort.threads)
    for name, reason in failures.items():
        report.skipped[name] = reason
        print(f"  left out: {name}: {reason}", file=sys.stderr, flush=True)
    for (name, bar), label in zip(bars.items(), against, strict=True):
        if ours in times and name in times:
            _add_time(report, work, label, times[ours], times[name], bar)


def _compare_memory(
    report: Report, effort: Effort, workload: str, names: tuple[str, str], titles: tuple[str, str], bar: float
) -> None:
    pairs = [[memory.measure(name, workload, effort.threads) for name in names] for _ in range(effort.memory_rounds)]
    for kind in ("resident", "live"):
        series = [[getattr(pair[side], kind) / MIB for pair in pairs] for side in (0, 1)]
        label = {"resident": "memory, resident", "live": "memory, live tensors"}[kind]
        report.rows.append(Row(*titles, label, "MiB", compare(*series), effort.memory_rounds, bar))


def _times(steps: dict[str, Step], effort: Effort, warmup: int = 2) -> dict[str, list[float]]:
    """Times of steps that need nothing but torch, so that a failure is ours."""
    times, failures = interleave(steps, effort.rounds, effort.threads, warmup)
    if failures:
        raise RuntimeError(f"could not be timed: {failures}")
    return times


def _add_time(
    report: Report, work: str, against: str, ours: Sequence[float], theirs: Sequence[float], bar: float
) -> None:
    milliseconds = [[1e3 * seconds for seconds in series] for series in (ours, theirs)]
    report.rows.append(Row(work, against, "time", "ms", compare(*milliseconds), len(ours), bar))


def _check_sort_based() -> None:
    """The sort-based loss is a fair rival only as long as it computes the same."""
    logits, labels = workloads.make(workloads.WORKLOADS["full-tiny"])
    ours, theirs = (loss(logits, labels).item() for loss in (contestants.ours, contestants.sort_based))
    if abs(ours - theirs) > 1e-5 * abs(theirs):
        raise RuntimeError(f"losspool gives {ours}, the sort-based loss {theirs}")
