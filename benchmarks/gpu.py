"""Time the loss on a GPU: ``python benchmarks/gpu.py``. README.md, "On a GPU", describes the method.

First the tests that need a GPU run; a card on which they fail gets no table. Then forward and
backward of every contestant are timed with events, interleaved, and their peak memory is read
from torch's allocator.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import contestants
import machine
from losspool import kernels
from report import table, write
from workloads import CLASSES, VOID, WORKLOADS, M, Workload, make

HERE = Path(__file__).resolve().parent
SIZES = {
    "2×19×128×128": Workload((2, CLASSES, 128, 128), (2, 128, 128)),
    "2×19×550×550": WORKLOADS["full"],
    "8×19×512×1024": Workload((8, CLASSES, 512, 1024), (8, 512, 1024)),
    "2×19×69×69 to 550×550": WORKLOADS["upsampled-550"],
    "1×19×128×256 to 1024×2048": WORKLOADS["upsampled-2048"],
    "512×1000": WORKLOADS["512×1000"],
    "512×32000": WORKLOADS["512×32000"],
}
TINY = {
    "2×19×8×8": Workload((2, CLASSES, 8, 8), (2, 8, 8)),
    "1×19×2×2 to 8×8": Workload((1, CLASSES, 2, 2), (1, 8, 8)),
    "9×600": Workload((9, 600), (9,)),
}
Loss = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    options = _parse()
    device = torch.device(options.device)
    if device.type == "cuda" and not options.skip_tests:
        tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", str(HERE.parent / "tests" / "gpu")]
        if subprocess.run(tests, cwd=HERE.parent).returncode != 0:
            sys.exit("the tests fail on this card, so times would mean nothing; please send what they printed")
    rows = []
    for name, workload in (TINY if options.tiny else SIZES).items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        torch.compiler.reset()  # or later sizes would be compiled for any size
        logits, labels = (tensor.detach().to(device) for tensor in make(workload))
        rows += measure(name, logits.requires_grad_(), labels, options.rounds)
    header = {"card": card(device), **machine.describe()}
    save(options.output, header, rows)
    print(markdown(header, rows))


def losses(upsampled: bool, on_gpu: bool) -> dict[str, Loss]:
    """Return the contestants. Peers of the upsampled loss enlarge the logits first."""

    def enlarged(loss: Loss) -> Loss:
        def call(logits: Tensor, labels: Tensor) -> Tensor:
            return loss(F.interpolate(logits, labels.shape[1:], mode="bilinear"), labels)

        return call if upsampled else loss

    found: dict[str, Loss] = {
        "losspool": contestants.ours_upsampled if upsampled else contestants.ours,
        "F.cross_entropy": enlarged(contestants.plain),
        "top-k": enlarged(of_images(top_k)),
        "sort-based pooling": enlarged(of_images(contestants.sort_based)),
    }
    if on_gpu:  # on the CPU the compiler is tested elsewhere
        for name in ("F.cross_entropy", "losspool"):
            found[f"{name}, compiled"] = torch.compile(found[name], fullgraph=True, dynamic=False)
    return found


def of_images(loss: Loss) -> Loss:
    """Make a loss of images take (N, C) logits, as one image."""

    def call(logits: Tensor, labels: Tensor) -> Tensor:
        return loss(logits.t()[None], labels[None]) if logits.ndim == 2 else loss(logits, labels)

    return call


def top_k(input: Tensor, target: Tensor) -> Tensor:
    """Online hard example mining: the mean of each image's hardest quarter of all pixels; the host does not wait."""
    pixels = F.cross_entropy(input, target, ignore_index=VOID, reduction="none").flatten(1)
    return pixels.topk(max(int(M * pixels.shape[1]), 1), sorted=False).values.mean()


def measure(work: str, logits: Tensor, labels: Tensor, rounds: int) -> list[dict[str, Any]]:
    """Time every contestant in every round, each round starting with another one."""
    found = losses(logits.shape[2:] != labels.shape[1:], logits.device.type == "cuda")
    steps = {name: _step(loss, logits, labels) for name, loss in found.items()}
    peaks = {name: _peak(step, logits.device) for name, step in steps.items()}  # warms up as well
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(_milliseconds(steps[name], logits.device))
    return [
        {
            "work": work,
            "loss": name,
            "ms": statistics.median(values),
            "quartiles": _quartiles(values),
            "peak_mib": peaks[name],
            "rounds": rounds,
        }
        for name, values in times.items()
    ]


def _step(loss: Loss, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(loss(logits, labels), [logits])


def _peak(step: Callable[[], object], device: torch.device) -> float | None:
    """Return MiB above the inputs after three runs, or None on a device whose allocator does not say."""
    for _ in range(3):
        step()
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _milliseconds(step: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def card(device: torch.device) -> str:
    if device.type != "cuda":
        return "none (a trial on the CPU)"
    platform = f"CUDA {torch.version.cuda}" if torch.version.hip is None else f"ROCm {torch.version.hip}"
    capability = ".".join(str(number) for number in torch.cuda.get_device_capability(device))
    return f"{torch.cuda.get_device_name(device)}, capability {capability}, {platform}, {_kernels(device)}"


def _kernels(device: torch.device) -> str:
    if reason := kernels.unusable(device):
        return f"without kernels: {reason}"
    import triton

    return f"Triton {triton.__version__}"


def markdown(header: dict[str, str], rows: list[dict[str, Any]]) -> str:
    plain = {row["work"]: row["ms"] for row in rows if row["loss"] == "F.cross_entropy"}
    cells = [("work", "loss", "ms", "quartiles", "of F.cross_entropy", "peak MiB")]
    for row in rows:
        peak = "" if row["peak_mib"] is None else f"{row['peak_mib']:.1f}"
        quartiles = f"{row['quartiles'][0]:.3f}–{row['quartiles'][1]:.3f}"
        ratio = f"{row['ms'] / plain[row['work']]:.2f}"
        cells.append((row["work"], row["loss"], f"{row['ms']:.3f}", quartiles, ratio, peak))
    lines = [f"- {name}: {value}" for name, value in header.items()]
    return "\n".join([*lines, "", *table(cells)]) + "\n"


def save(output: Path, header: dict[str, str], rows: list[dict[str, Any]]) -> None:
    text = json.dumps({"header": header, "rows": rows}, indent=2, ensure_ascii=False)
    write(output.with_suffix(".json"), text + "\n")
    write(output.with_suffix(".md"), f"# On a GPU\n\n{markdown(header, rows)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=51, help="rounds per size (default: 51)")
    parser.add_argument("--output", type=Path, default=HERE / "gpu", help="write PATH.json and PATH.md (default: gpu)")
    parser.add_argument("--skip-tests", action="store_true", help="do not run the tests first")
    choose = "cuda, or cpu for a trial (default: cuda); CUDA_VISIBLE_DEVICES=1 selects the second card"
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=choose)
    parser.add_argument("--tiny", action="store_true", help="tiny inputs, to try the script")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --device cpu --tiny tries the script without one")
    if not options.skip_tests and importlib.util.find_spec("pytest") is None:
        parser.error("the tests that run first need pytest: install '.[dev]', or give --skip-tests")
    if not options.output.parent.is_dir():
        parser.error(f"--output {options.output}: no such folder")
    return options


if __name__ == "__main__":
    main()
