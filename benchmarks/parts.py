"""Where the time goes where losspool loses: small inputs, middle sizes with two threads, the compiled loss, two pools.

    python benchmarks/parts.py

Unless noted, one process measures all, so times do not add up to those in the table of results.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import contestants
import losspool
from measure import Step, compare, interleave
from workloads import VOID, WORKLOADS, losses, make

CALLS = 30


def milliseconds(work: Callable[[], object]) -> float:
    """The median of single calls, after a few that are not timed."""
    taken = []
    for _ in range(CALLS + 5):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken[5:])


def profiled(work: Callable[[], object]) -> Any:
    """The profiler's events of one call, after others that are not profiled."""
    for _ in range(5):
        work()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    return profiler.events()


def step(loss: Callable[..., Tensor], workload: str) -> Callable[[], None]:
    logits, labels = make(WORKLOADS[workload])
    return lambda: torch.autograd.backward(loss(logits, labels, ignore_index=VOID), inputs=[logits])


def operators(events: Any) -> int:
    """Operators of torch that Python or autograd called, without those that operators called themselves."""
    own = ("aten::", "losspool::")
    return sum(
        event.name.startswith(own) and not (event.cpu_parent and event.cpu_parent.name.startswith(own))
        for event in events
    )


def main() -> None:
    both = {"losspool": losspool.cross_entropy, "F.cross_entropy": F.cross_entropy}
    torch.set_num_threads(1)
    print("Small input, 8×5×32×32, forward and backward, one thread")
    for name, loss in both.items():
        work = step(loss, "8×5×32×32")
        print(f"  {name:16} {operators(profiled(work)):4d} operators  {milliseconds(work):8.3f} ms")

    print("Middle sizes with one and two threads, of F.cross_entropy's time, each in a process of its own")
    for size in ("4×19×64×64", "4×19×128×128", "2×19×256×256", "512×1000"):
        steps = {name: Step(contestants.training_step, (name, size), repeats=10) for name in ("losspool", "torch")}
        for threads in (1, 2):
            seconds, _ = interleave(steps, CALLS, threads)
            found = compare(seconds["losspool"], seconds["torch"])
            times = f"{1000 * found.ours:6.2f} of {1000 * found.theirs:6.2f} ms"
            print(f"  {size:13} {threads} {found.median:5.2f} {times}")

    torch.set_num_threads(2)
    print("Compiled, 2×19×550×550, forward and backward, two threads")
    for name, loss in both.items():
        work = step(torch.compile(loss), "full")
        search = [event.cpu_time_total for event in profiled(work) if event.name == "losspool::pool"]
        total = milliseconds(work)
        parts = f", of which search and weights {sum(search) / 1000:.1f} ms" if search else ""
        print(f"  {name:16} {total:8.1f} ms{parts}")

    print("Search and weights of two pools of 302,500 losses, and of eight")
    for pools in (2, 8):
        values = losses(pools, 302_500)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            taken = milliseconds(lambda values=values: losspool.pooling_weights(values))
            print(f"  {pools} pools, {threads} {'thread ' if threads == 1 else 'threads'} {taken:8.2f} ms")
        print(
            f"  {pools} pools, torch.sort, 2 threads {milliseconds(lambda values=values: torch.sort(values)):8.2f} ms"
        )


if __name__ == "__main__":
    main()
