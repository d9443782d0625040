"""The hard matrix on a million losses, against the reference. Takes some minutes: `make matrix`."""

import time

import torch

import problems
import tolerances
from certificate import violations
from losspool import reference, solver

SIZE = 1_000_000


def errors(losses: torch.Tensor, p: float, m: float) -> tuple[float, float, float]:
    """Of the value (relative), of the weights (in τ), and the worst violation of the float64 certificate."""
    truth = reference.pool(losses, p=p, m=m)
    row = losses.unsqueeze(0)
    solution = solver.solve(row, p=p, m=m, share=False)
    weights = solver.weights(row, solution, p)[0].double()
    wrong = abs(float(solution.value.float()) - truth.value) - tolerances.one_ulp(truth.value)
    value = max(wrong, 0.0) / truth.value if truth.value else float(solution.value)
    weight = float(((weights - truth.weights).abs() * (losses > 0)).max()) / truth.tau
    return value, weight, max(violations(losses.unsqueeze(0), p, m)[0])


def main() -> int:
    started, checked, failed = time.perf_counter(), 0, 0
    worst = [0.0, 0.0, 0.0, 0.0]
    for name, losses, m in problems.matrix(SIZE):
        for p in problems.P_VALUES:
            value, weight, gap = errors(losses, p, m)
            near_one = int(p <= 1.01)
            worst[0], worst[3] = max(worst[0], value), max(worst[3], gap)
            worst[1 + near_one] = max(worst[1 + near_one], weight)
            checked += 1
            if value > tolerances.VALUE or weight > tolerances.weight(p) or gap > tolerances.CERTIFICATE:
                failed += 1
                print(f"{name}, p = {p}, m = {m:g}: value {value:.1e}, weight {weight:.1e} τ, gap {gap:.1e}")
    minutes = (time.perf_counter() - started) / 60
    print(f"{checked} problems of {SIZE:,} losses in {minutes:.1f} min, {failed} beyond the bounds")
    print(f"largest errors: value {worst[0]:.1e} (relative), weight {worst[1]:.1e} τ, ", end="")
    print(f"at p ≤ 1.01 {worst[2]:.1e} τ, certificate in float64 {worst[3]:.1e}")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
