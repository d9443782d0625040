"""The hard matrix on a million losses, on every path without a GPU, against the reference: `make matrix`.

Takes half an hour or so. ``--path NAME`` checks one path, ``--problem NAME`` the problems whose name contains NAME.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch

import problems
import tolerances
from certificate import violations
from losspool import reference, solver
from losspool.solver import host

SIZE = 1_000_000
PATHS = {
    "cpu": "Newton's search, or the bracketed one",
    "device": "sorting, where the host must not wait",
    "float32": "the same on a device without float64 and without denormals",
    "counted": "pools that span several processes",
}


@contextmanager
def on_path(name: str) -> Iterator[None]:
    alone = partial(solver.solve, exchange=lambda counts, sums: (counts, sums[None]))
    with (
        mock.patch.object(host, "host_may_look", host.host_may_look if name in ("cpu", "counted") else lambda _: False),
        mock.patch.object(host, "has_float64", (lambda _: False) if name == "float32" else host.has_float64),
        mock.patch.object(solver, "solve", alone if name == "counted" else solver.solve),
    ):
        yield


def errors(losses: torch.Tensor, p: float, m: float, truth: reference.Reference) -> tuple[float, float]:
    """Of the value (relative), and of the weights (in τ)."""
    row = losses.unsqueeze(0)
    solution = solver.solve(row, p=p, m=m, share=False)
    weights = solver.weights(row, solution, p)[0].double()
    wrong = abs(float(solution.value.float()) - truth.value) - tolerances.one_ulp(truth.value)
    value = max(wrong, 0.0) / truth.value if truth.value else float(solution.value)
    return value, float(((weights - truth.weights).abs() * (losses > 0)).max()) / truth.tau


class Worst:
    """The largest errors of a path."""

    def __init__(self) -> None:
        self.checked = self.failed = 0
        self.value = self.weight = self.near_one = self.gap = 0.0

    def add(self, name: str, p: float, m: float, value: float, weight: float, gap: float) -> None:
        self.checked += 1
        self.value, self.gap = max(self.value, value), max(self.gap, gap)
        if p <= 1.01:
            self.near_one = max(self.near_one, weight)
        else:
            self.weight = max(self.weight, weight)
        if value > tolerances.VALUE or weight > tolerances.weight(p) or gap > tolerances.CERTIFICATE:
            self.failed += 1
            print(f"{name}, p = {p}, m = {m:g}: value {value:.1e}, weight {weight:.1e} τ, gap {gap:.1e}")

    def __str__(self) -> str:
        return (
            f"{self.checked} problems, {self.failed} beyond the bounds; largest errors: value {self.value:.1e} "
            f"(relative), weight {self.weight:.1e} τ, at p ≤ 1.01 {self.near_one:.1e} τ, "
            f"certificate in float64 {self.gap:.1e}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", choices=PATHS, action="append", help="check only this path; repeatable")
    parser.add_argument("--problem", default="", help="check only problems whose name contains this")
    chosen = parser.parse_args()
    started, found = time.perf_counter(), {name: Worst() for name in chosen.path or PATHS}
    for name, losses, m in problems.matrix(SIZE):
        if chosen.problem not in name:
            continue
        denormal = bool((losses[losses > 0] < 1e-37).any())
        for p in problems.P_VALUES:
            truth = reference.pool(losses, p=p, m=m)
            for path, worst in found.items():
                if path == "float32" and denormal:
                    continue  # such a device rounds these losses to zero
                with on_path(path):
                    gap = 0.0 if path == "float32" else max(violations(losses.unsqueeze(0), p, m)[0])
                    worst.add(f"{path}: {name}", p, m, *errors(losses, p, m, truth), gap)
    print(f"{SIZE:,} losses each, {(time.perf_counter() - started) / 60:.1f} min")
    for path, worst in found.items():
        print(f"{path} ({PATHS[path]}): {worst}")
    return int(any(worst.failed for worst in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
