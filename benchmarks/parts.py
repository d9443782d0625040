"""Where the time goes in three rows that losspool loses: small inputs, the compiled loss, and two pools.

    python benchmarks/parts.py

The parts are measured in one process, so they do not add up to the table of results: there each contestant has its own.
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

import losspool
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
