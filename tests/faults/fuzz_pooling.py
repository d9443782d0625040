"""Generated pooling problems through the public functions, against the reference.

    PYTHONPATH=tests python tests/faults/fuzz_pooling.py --problems 100000 --seed 0

A problem is made from the seed and its number alone: ``--only 1234`` makes that one again.
Expect some eight minutes on an idle core, and no disagreement.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import tolerances
from faults.pooling_problems import Problem, make
from losspool import PoolingStats, cross_entropy, max_pool, pooling_weights, reference

ROUNDING_REFERENCE = 1.001  # below this p (and above 1) the reference itself loses digits


class DisagreementError(AssertionError):
    """The library and the reference differ by more than the bounds."""


class Errors(NamedTuple):
    """Of the value, relative to it, and of the weights in units of τ."""

    value: float = 0.0
    weight: float = 0.0


def check(problem: Problem) -> Errors:
    """Raises :class:`DisagreementError` where the library and the reference differ."""
    return _check_losses(problem) if problem.target is None else _check_logits(problem)


def _demand(holds: bool, problem: Problem, reported: str) -> None:
    if not holds:
        raise DisagreementError(f"{reported}\n{problem}")


def _check_losses(problem: Problem) -> Errors:
    settings: dict[str, Any] = {"p": problem.p, "m": problem.m, "mask": problem.mask, "scope": problem.scope}
    losses = problem.values.clone().requires_grad_()
    stats = PoolingStats()
    result = max_pool(losses, **settings, stats=stats)
    weights = stats.weights
    assert weights is not None
    valid = torch.ones_like(losses, dtype=torch.bool) if problem.mask is None else problem.mask
    if problem.number % 2:  # a second solve: half of the problems will do
        alone = pooling_weights(problem.values, **settings)
        _demand(torch.equal(alone.nan_to_num(-1.0), weights.nan_to_num(-1.0)), problem, "two kinds of weights")
    errors = _judge(problem, problem.values, valid, result, weights, stats)
    (gradient,) = torch.autograd.grad(result, losses)
    expected = (weights.double() / _pools(problem, valid)).to(weights.dtype).to(losses.dtype)
    kind = torch.finfo(losses.dtype)
    # Weights go down to nothing: an absolute tolerance beyond that of denormal numbers would hide the small ones.
    bounds = {"rtol": 4 * kind.eps, "atol": 2 * kind.smallest_normal * kind.eps}
    close = torch.allclose(gradient.double(), expected.double(), **bounds, equal_nan=True)
    _demand(close, problem, "the gradient is not the weights over the number of pools")
    return errors


def _check_logits(problem: Problem) -> Errors:
    target, ignored = problem.target, problem.options["ignore_index"]
    assert target is not None
    settings: dict[str, Any] = {"p": problem.p, "m": problem.m, "scope": problem.scope}
    logits = problem.values.clone().requires_grad_()
    stats = PoolingStats()
    result = cross_entropy(logits, target, **settings, **problem.options, stats=stats)
    working = torch.float64 if logits.dtype == torch.float64 else torch.float32
    valid = target != ignored
    pixels = _pixel_losses(problem, problem.values.to(working))
    errors = _judge(problem, pixels, valid, result, stats.weights, stats)
    (gradient,) = torch.autograd.grad(result, logits)
    void = (~valid).unsqueeze(1).expand(gradient.shape)
    _demand(bool((gradient[void] == 0).all()), problem, "a void pixel has a gradient")
    if bool(pixels[valid].isfinite().all()):
        _demand(bool(gradient.isfinite().all()), problem, "the gradient is not finite")
        assert stats.weights is not None
        _check_gradient_of_logits(problem, valid, gradient, stats.weights / _pools(problem, valid))
    if logits.dtype != working:
        _check_against_the_naive_way(problem, valid, float(result.detach()))
    return errors


def _check_gradient_of_logits(problem: Problem, valid: Tensor, gradient: Tensor, shares: Tensor) -> None:
    """It is that of the pixel losses, each with its share; autograd knows that one, in float64."""
    logits = problem.values.double().requires_grad_()
    (expected,) = torch.autograd.grad(_pixel_losses(problem, logits), logits, shares.double())
    kind, weight = torch.finfo(gradient.dtype), problem.options.get("weight")
    # A softmax errs by rounding of one, times the pixel's share and its class's weight; then the result is rounded.
    pixel = shares.double() * (1.0 if weight is None else float(weight.max()))
    bound = 8 * torch.finfo(shares.dtype).eps * pixel.unsqueeze(1) + 2 * kind.eps * expected.abs()
    bound = bound + 2 * kind.smallest_normal * kind.eps
    fits = ((gradient.double() - expected).abs() <= bound) | ~valid.unsqueeze(1)
    _demand(bool(fits.all()), problem, "the gradient is not that of the weighted pixel losses")


def _pools(problem: Problem, valid: Tensor) -> int:
    """How many there are: one without a valid pixel is none, but to divide by."""
    return max(int((_rows(problem, valid).sum(1) > 0).sum()), 1)


def _check_against_the_naive_way(problem: Problem, valid: Tensor, result: float) -> None:
    """Half precision: above, the float32 losses of these logits were pooled as well as float32 goes.

    From the truth, float64 losses of the same logits, the result may be as far as that of half-precision losses,
    the naive way, pooled without any further error. Where luck makes that exact, float32 rounding remains:
    1e-6 of the value, and that of a difference of logits.
    """
    exact, naive = (_pixel_losses(problem, problem.values.to(dtype)) for dtype in (torch.float64, problem.values.dtype))
    if not bool(exact[valid].isfinite().all()) or problem.p < ROUNDING_REFERENCE:
        return
    truth = _truth(problem, exact, valid)[0]
    error = abs(_truth(problem, naive, valid)[0] - truth) if bool(naive[valid].isfinite().all()) else math.inf
    shown = problem.values.double().abs()[valid.unsqueeze(1).expand(problem.values.shape)]
    largest = float(shown[shown.isfinite()].max()) if bool(shown.isfinite().any()) else 0.0
    if (weight := problem.options.get("weight")) is not None:
        largest *= float(weight.max())
    allowed = max(error, tolerances.VALUE * truth) + 4 * torch.finfo(torch.float32).eps * largest
    _demand(
        abs(result - truth) <= allowed, problem, f"{result!r}, the truth is {truth!r}, the naive way errs by {error}"
    )


def _pixel_losses(problem: Problem, logits: Tensor) -> Tensor:
    """What the pixel losses are documented to be."""
    assert problem.target is not None
    options = dict(problem.options)
    if (weight := options.pop("weight", None)) is not None:
        options["weight"] = weight.to(logits.dtype)
    return F.cross_entropy(logits, problem.target.long(), reduction="none", **options)


def _rows(problem: Problem, values: Tensor) -> Tensor:
    """(R, N): what is pooled together stands in a row."""
    rows = values.shape[0] if problem.scope == "image" else 1
    return values.reshape(rows, values.numel() // max(rows, 1))


def _pixels(m: float, n: int) -> float:
    return min(max(m * n if isinstance(m, float) else m, 1.0), float(n))


def _solved(losses: Tensor, p: float, m: float) -> reference.Reference:
    """The reference, at a scale where nothing that it computes is denormal or overflows."""
    losses = losses.double()
    largest = float(losses.max()) if losses.numel() else 0.0
    shift = 600 - math.frexp(largest)[1] if largest else 0
    solved = reference.pool(torch.ldexp(losses, torch.tensor(shift)), p=p, m=_pixels(m, losses.numel()))
    return solved._replace(value=math.ldexp(solved.value, -shift), alpha=math.ldexp(solved.alpha, -shift))


def _truth(problem: Problem, losses: Tensor, valid: Tensor) -> tuple[float, list[reference.Reference]]:
    """The value, and every pool's solution."""
    p = math.inf if problem.p >= 1e15 else float(problem.p)  # q rounds to one
    rows, masks = _rows(problem, losses), _rows(problem, valid)
    pools = [_solved(row[mask], p, problem.m) for row, mask in zip(rows, masks, strict=True)]
    filled = [pool.value for pool in pools if pool.weights.numel()]
    return math.fsum(value / len(filled) for value in filled), pools


def _judge(
    problem: Problem, losses: Tensor, valid: Tensor, result: Tensor, weights: Tensor, stats: PoolingStats
) -> Errors:
    value = float(result.detach())
    working = torch.float64 if losses.dtype == torch.float64 else torch.float32
    _demand(result.dtype == weights.dtype == working, problem, f"the result is {result.dtype}")
    assert stats.valid is not None
    counts = _rows(problem, valid).sum(1).tolist()
    _demand(stats.valid.tolist() == counts, problem, f"n is {stats.valid.tolist()}, {counts} are valid")
    _demand(bool((weights[~valid] == 0).all()), problem, "a void pixel has a weight")
    if not bool(losses[valid].isfinite().all()):
        return _judge_not_finite(problem, losses, valid, value, weights)
    _demand(math.isfinite(value), problem, f"the result is {value}")
    _demand(bool(weights.isfinite().all()), problem, "the weights are not finite")
    if 1 < problem.p < ROUNDING_REFERENCE:
        return _judge_by_monotonicity(problem, losses, valid, value)
    truth, pools = _truth(problem, losses, valid)
    double = working == torch.float64
    # Among float64's denormals the solver's own arithmetic rounds; that of float32 losses is float64.
    ulps = (4 if double else 1) * tolerances.one_ulp(truth, working)
    error = max(abs(value - truth) - ulps, 0.0) / truth if truth else value
    _demand(
        error <= (tolerances.CERTIFICATE if double else tolerances.VALUE),
        problem,
        f"the result is {value!r}, the reference says {truth!r}",
    )
    worst = 0.0
    for row, mask, pool in zip(_rows(problem, weights), _rows(problem, valid), pools, strict=True):
        if pool.weights.numel():
            worst = max(worst, float((row[mask].double() - pool.weights).abs().max()) / pool.tau)
    _demand(
        worst <= (tolerances.CERTIFICATE if double else tolerances.weight(problem.p)),
        problem,
        f"a weight is {worst} τ away from the reference's",
    )
    return Errors(error, worst)


def _judge_by_monotonicity(problem: Problem, losses: Tensor, valid: Tensor, value: float) -> Errors:
    """Between p = 1 and where the reference is exact again: the value never rises with p."""
    high, low = (_truth(replaced, losses, valid)[0] for replaced in (_at(problem, 1.0), _at(problem, 1.001)))
    slack = max(tolerances.VALUE * high, 2 * tolerances.one_ulp(high))
    _demand(low - slack <= value <= high + slack, problem, f"{value!r} is not between {low!r} and {high!r}")
    return Errors()


def _at(problem: Problem, p: float) -> Problem:
    return Problem(problem.number, problem.kind, problem.values, p, problem.m, problem.scope)


def _judge_not_finite(problem: Problem, losses: Tensor, valid: Tensor, value: float, weights: Tensor) -> Errors:
    """The result is infinite, or NaN where a loss is; the weights of that pool are NaN, those of others are not."""
    strange = losses[valid].isnan().any()
    _demand(math.isnan(value) if strange else value == math.inf, problem, f"not finite, but the result is {value}")
    for row, mask, found in zip(*(_rows(problem, each) for each in (losses, valid, weights)), strict=True):
        broken = not bool(row[mask].isfinite().all())
        _demand(bool((found[mask].isnan() == broken).all()), problem, "NaN weights in the wrong pools")
    return Errors()


def fuzz(problems: int, seed: int, first: int = 0) -> Iterator[tuple[Problem, Errors]]:
    for number in range(first, first + problems):
        problem = make(seed, number)
        yield problem, check(problem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first problem, to share them out")
    parser.add_argument("--only", type=int, help="the number of the one problem to check")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.only is not None:
        problem = make(chosen.seed, chosen.only)
        print(problem, check(problem), sep="\n")
        return 0
    began = reported = time.perf_counter()
    worst: dict[str, list[float]] = {}
    done = 0
    try:
        for problem, errors in fuzz(chosen.problems, chosen.seed, chosen.first):
            done += 1
            what = (
                f"{str(problem.values.dtype).removeprefix('torch.')} {'losses' if problem.target is None else 'logits'}"
            )
            entry = worst.setdefault(what, [0, 0.0, 0.0, 0.0])
            near = 3 if problem.p <= 1.01 else 2
            entry[0] += 1
            entry[1], entry[near] = max(entry[1], errors.value), max(entry[near], errors.weight)
            if time.perf_counter() - reported > 5:
                reported = time.perf_counter()
                print(f"{done:,} of {chosen.problems:,} in {reported - began:.0f} s", flush=True)
    except DisagreementError as error:
        print(f"seed {chosen.seed}, {error}")
        return 1
    print(f"{done:,} problems of seed {chosen.seed} in {time.perf_counter() - began:.0f} s, none beyond the bounds")
    for what, (count, value, weight, near_one) in sorted(worst.items()):
        print(f"{what:>16}: {count:6,} problems, largest errors: value {value:.1e} (relative), ", end="")
        print(f"weight {weight:.1e} τ, at p ≤ 1.01 {near_one:.1e} τ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
