"""Peak memory of one forward and backward pass, above the inputs, measured two ways.

*Resident*: how much the process grows, as the operating system sees it. Every measurement has
a process of its own: this file is also the command that such a process runs.

*Live tensors*: the most bytes of tensors alive at once, as torch's allocator reports them to
its profiler. A ``TorchDispatchMode`` would not do: it does not look inside custom operators.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

import contestants
import workloads


class Peak(NamedTuple):
    """Bytes above the inputs; the gradient of the input is among them."""

    resident: int
    live: int


def measure(contestant: str, workload: str, threads: int) -> Peak:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, contestant, workload, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(f"measuring the memory of {contestant} failed: {reason}")
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def resident_peak(step: Callable[[], object]) -> int:
    """How far the resident size rises above its present value during ``step``."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # Freed memory that the C library keeps would be used again unseen. Only glibc has this.
        ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to the present size
        resettable = True
    except OSError:
        resettable = False
    result = step()
    # Without a reset the mark may be an earlier one: then this is an upper bound.
    after = _status("VmHWM") if resettable else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    del result
    return after - before


def live_peak(step: Callable[[], object]) -> int:
    """The most bytes that tensors made by ``step`` take at once, temporaries inside operators included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = step()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    del result
    changes = [event for event in events if event.get("name") == "[memory]"]
    live = peak = 0
    for change in sorted(changes, key=lambda event: float(event["ts"])):
        live += change["args"]["Bytes"]  # negative where memory is given back
        peak = max(peak, live)
    return peak


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure one contestant's peak memory in this process.")
    parser.add_argument("contestant")
    parser.add_argument("workload", choices=workloads.WORKLOADS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step = contestants.training_step(options.contestant, options.workload)
    # Code, threads and lazily built tables come into memory once, and count for nobody.
    contestants.training_step(options.contestant, f"{options.workload.split('-')[0]}-tiny")()
    print(json.dumps(Peak(resident_peak(step), live_peak(step))._asdict()))


if __name__ == "__main__":
    _main()
