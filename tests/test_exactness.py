"""The solver against Algorithm 1, arbitrary precision and a convex solver, on the hard matrix."""

import math
from functools import cache, partial

import cvxpy
import mpmath
import numpy
import pytest
import torch

import problems
import tolerances
from certificate import violations
from losspool import max_pool, reference, solver
from losspool.modules import LossMaxPooling
from losspool.solver import counting, host, newton, optimum


@pytest.fixture(params=["newton", "bracketed", "sorted", "device", "counted"])
def path(request, monkeypatch):
    """Every search: on CPUs, on devices that the host must not wait for, and over several processes."""
    monkeypatch.setattr(optimum, "_SMALL_POOL", 1 << 20 if request.param == "sorted" else 0)
    if request.param == "bracketed":
        monkeypatch.setattr(newton, "_ROUNDS", 0)
    if request.param == "device":
        monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    if request.param == "counted":
        alone = partial(solver.solve, exchange=lambda counts, sums: (counts, sums[None]))
        monkeypatch.setattr(solver, "solve", alone)
        monkeypatch.setattr(counting, "_MOST_BINS", counting._FEWEST_BINS)  # quicker on a CPU; others in test_search.py
    return request.param


def solved(losses, p, m):
    solution = solver.solve(losses.unsqueeze(0), p=p, m=m, share=False)
    return solution, solver.weights(losses.unsqueeze(0), solution, p).squeeze(0)


def assert_exact(losses, p, m, truth, name):
    solution, weights = solved(losses, p, m)
    assert_row(losses, float(solution.value.float()), weights, p, truth, (name, p, m))


def assert_rows(names, rows, p, m, truths):
    """All pools in one call: a row must not depend on the others."""
    solution = solver.solve(rows, p=p, m=m, share=False)
    values, weights = solution.value.float().tolist(), solver.weights(rows, solution, p)
    for name, losses, value, found, truth in zip(names, rows, values, weights, truths, strict=True):
        assert_row(losses, value, found, p, truth, (name, p, m))


def assert_row(losses, value, weights, p, truth, where):
    allowed = max(tolerances.VALUE * truth.value, tolerances.one_ulp(truth.value))
    assert abs(value - truth.value) <= allowed, (*where, value, truth.value)
    errors = (weights.double() - truth.weights).abs()[losses > 0] / truth.tau
    assert (errors <= tolerances.weight(p)).all(), (*where, errors.max())


@pytest.fixture(scope="module")
def truths():
    """By size, place in the matrix and p: the same for every search."""
    matrix = cache(lambda n: list(problems.stacked(n)))

    def pooled(n, place, p):
        _, rows, m = matrix(n)[place]
        return [reference.pool(losses, p=p, m=m) for losses in rows]

    return cache(pooled)


@pytest.mark.parametrize("n", problems.SIZES)
def test_float32_losses_agree_with_the_reference(n, path, truths):
    for place, (names, rows, m) in enumerate(problems.stacked(n)):
        for p in problems.P_VALUES:
            if n == 10_000 and p not in (1.0, 1.001, 1.3, 1000.0):
                continue  # a third of the values of p is a second's work already
            assert_rows(names, rows, p, m, truths(n, place, p))


@pytest.mark.parametrize("p", [1.05, 1.3, 2.0])
def test_the_smallest_denormals(p, path):
    """A few hundred values at most: many losses lie between a threshold and its neighbour in float32."""
    generator = torch.Generator().manual_seed(0)
    for n in (200, 10_000):
        losses = torch.rand(n, generator=generator) * 1e-42
        for share in (0.25, 0.9):
            assert_exact(losses, p, share * n, reference.pool(losses, p=p, m=share * n), "the smallest denormals")


@pytest.mark.parametrize("n", problems.SIZES)
def test_float64_solutions_are_certified(n, path):
    """Both norms within their bounds, and the primal value equals the dual value g(λ*)."""
    for names, rows, m in problems.stacked(n):
        for p in (1.0, 1.3) if n == 10_000 else problems.P_VALUES if path == "newton" else (1.0, 1.01, 1.3, 10.0):
            for name, found in zip(names, violations(rows, p, m), strict=True):
                assert max(found) <= tolerances.CERTIFICATE, (name, p, m)


@pytest.mark.parametrize(("n", "share"), problems.CRUMBS)
def test_m_as_a_share_of_the_pixels(n, share, path):
    """The room that is left at some loss may be a rounding error."""
    rows = torch.stack([problems.losses(n)[name] for name in ("uniform", "exponential", "log-normal 3", "ties")])
    for p in (1.0, 1.001, 1.3):
        solution = solver.solve(rows, p=p, m=share, share=True)
        found = zip(rows, solution.value.tolist(), solver.weights(rows, solution, p), strict=True)
        for losses, value, weights in found:
            assert_row(losses, value, weights, p, reference.pool(losses, p=p, m=share * n), (n, share, p))


def precise(losses, p, m):
    """Algorithm 1 with 60 digits, its plain running sum and all."""
    with mpmath.workdps(60):
        values = [mpmath.mpf(float(x)) for x in losses]
        n, m, p = len(values), mpmath.mpf(m), mpmath.mpf(p)
        tau = mpmath.power(n, 1 / p - 1) * mpmath.power(m, -1 / p)
        q = p / (p - 1)
        a, c, alpha = mpmath.mpf(0), m - n, None
        for value in sorted(values):
            power = value**q
            if (c + 1) * power - (a + power) > 0:
                break
            a, c = a + power, c + 1
        alpha = (a / c) ** (1 / q) if a > 0 else mpmath.mpf(0)
        weights = [tau if x > alpha else tau * (x / alpha) ** (q - 1) if alpha > 0 else tau * 0 for x in values]
        value = sum(w * x for w, x in zip(weights, values, strict=True))
        return float(value), [float(w / tau) for w in weights], float(tau)


@pytest.mark.parametrize("n", [n for n in problems.SIZES if n <= 100])
def test_solver_and_reference_agree_with_arbitrary_precision(n):
    for name, losses, m in problems.matrix(n):
        for p in (1.001, 1.1, 1.3, 2.0, 10.0, 1000.0) if n < 100 else (1.001, 1.3):
            if m == n:
                continue
            value, shares, tau = precise(losses, p, m)
            truth = reference.pool(losses, p=p, m=m)
            assert truth.value == pytest.approx(value, rel=1e-10, abs=1e-300), (name, p, m)
            assert (truth.weights / tau).tolist() == pytest.approx(shares, abs=1e-8), (name, p, m)
            assert_exact(losses, p, m, reference.Reference(value, torch.tensor(shares) * tau, 0.0, tau), name)


@pytest.mark.parametrize("p", [1.0, 1.1, 1.3, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("m", [1.0, 9.5, 30.0])
@pytest.mark.parametrize("kind", ["uniform", "exponential", "clusters"])
def test_agrees_with_a_convex_solver(p, m, kind):
    n = 40
    losses = {
        "uniform": problems.losses(n)["uniform"] + 0.1,
        "exponential": problems.losses(n)["exponential"] + 0.1,
        "clusters": torch.cat([torch.full((20,), 0.2), torch.full((15,), 1.0), torch.full((5,), 3.0)]),
    }[kind]
    w = cvxpy.Variable(n)
    gamma = n ** (1 / p - 1)
    tau = gamma * m ** (-1 / p)
    order = "inf" if p == math.inf else p
    problem = cvxpy.Problem(
        cvxpy.Maximize(losses.double().numpy() @ w), [cvxpy.pnorm(w, order, approx=False) <= gamma, cvxpy.abs(w) <= tau]
    )
    best = problem.solve(solver=cvxpy.CLARABEL)
    solution, weights = solved(losses, p, m)
    assert float(solution.value) == pytest.approx(best, rel=tolerances.SOLVER)
    # Weights are determined less well than the value: the solver stops where the value hardly moves.
    if kind != "clusters":  # where ties at p = 1 may share in any way
        numpy.testing.assert_allclose(weights.double().numpy() / tau, w.value / tau, atol=5e-3)


@pytest.mark.parametrize("n", range(1, 33))
def test_every_small_size_agrees_with_the_reference(n):
    losses = torch.rand(n, generator=torch.Generator().manual_seed(n)) + 1e-3
    for m in range(1, n + 1):
        truth = reference.pool(losses, p=1.3, m=m)
        assert_exact(losses, 1.3, m, truth, f"n = {n}")
        assert float(solved(losses, 1.3, m)[0].alpha) == pytest.approx(truth.alpha, rel=1e-6) or m == n


def test_losses_a_few_ulps_apart(path):
    """A Newton step that rounds to just below α* saturates the ties at α* and leaves no room."""
    g = torch.Generator().manual_seed(0)
    for ties in (2, 5, 10, 30):
        tie = torch.rand(40 if path == "newton" else 3, 1, generator=g) * 3 + 0.1
        ulps = torch.randint(1, 6, tie.shape, generator=g)
        above, far_below = tie * (1 + ulps * 2.0**-23), torch.full_like(tie, 1e-6)
        rows = torch.cat([tie.expand(-1, ties), above, far_below], dim=1)
        for p in (1.0, 1.001, 1.7, 3.0, 10.0):
            for m in (ties, ties + 1):
                truths = [reference.pool(losses, p=p, m=m) for losses in rows]
                assert_rows([f"{ties} ties"] * len(rows), rows, p, float(m), truths)


def test_module_agrees_with_function():
    losses = torch.rand(2, 5, 6)
    assert torch.equal(LossMaxPooling(p=1.7, m=3)(losses), max_pool(losses, p=1.7, m=3))
