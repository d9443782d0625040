"""The hard matrix in seconds: what a changed solver does not survive (`make mutants` runs it on each mutant)."""

import pytest
import torch

import problems
from losspool import reference, solver
from losspool.solver import survey
from test_exactness import assert_exact, assert_rows, path, solved  # noqa: F401


@pytest.mark.parametrize("n", [1, 7, 60])
def test_solver(n, path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(survey, "_BLOCK", 16)
    for names, rows, m in problems.stacked(n):
        for p in (1.0, 1.001, 1.3, 10.0) if path == "newton" else (1.0, 1.3):
            assert_rows(names, rows, p, m, [reference.pool(losses, p=p, m=m) for losses in rows])


@pytest.mark.parametrize("p", [1.0, 1.01, 1.3])
def test_pools_that_are_large_enough_to_be_sampled(p):
    for name, losses in problems.losses(20_000).items():
        assert_exact(losses, p, 5000.0, reference.pool(losses, p=p, m=5000), name)


def test_pools_of_every_kind_in_one_batch(path):  # noqa: F811
    """Solvable, all zero, partly and wholly void, broken: side by side."""
    g = torch.Generator().manual_seed(0)
    rows = torch.rand(6, 50, generator=g)
    rows[1] = 0
    rows[2, ::3] = -1
    rows[3] = -1
    rows[4, 7] = torch.inf
    rows[5, 9] = torch.nan
    for p in (1.0, 1.3, float("inf")):
        solution = solver.solve(rows, p=p, m=0.3, share=True)
        weights = solver.weights(rows, solution, p)
        assert solution.valid.tolist() == [50, 50, 33, 0, 50, 50]
        for row in range(4):
            kept = rows[row][rows[row] >= 0]
            truth = reference.pool(kept, p=p, m=max(0.3 * len(kept), 1))
            assert float(solution.value[row]) == pytest.approx(truth.value, rel=1e-6)
            assert float(solution.tau[row]) == pytest.approx(truth.tau, rel=1e-9)
            assert float(solution.alpha[row]) == pytest.approx(truth.alpha, rel=1e-6)
            torch.testing.assert_close(weights[row][rows[row] >= 0], truth.weights.float(), rtol=1e-5, atol=1e-7)
            assert (weights[row][rows[row] < 0] == 0).all()
        assert solution.value[4].isinf()
        assert solution.value[5].isnan()
        assert weights[4:].isnan().all()


def test_counts_and_shares_of_pixels():
    losses = torch.rand(1, 40, generator=torch.Generator().manual_seed(1))
    for m, share, pixels in ((0.25, True, 10), (1e-9, True, 1), (1.0, True, 40), (7.0, False, 7), (90.0, False, 40)):
        solution = solver.solve(losses, p=1.7, m=m, share=share)
        assert float(solution.value) == pytest.approx(reference.pool(losses, p=1.7, m=pixels).value, rel=1e-6)
        assert float(solution.tau) == pytest.approx(40 ** (1 / 1.7 - 1) * pixels ** (-1 / 1.7), rel=1e-9)


def test_zeros_count_where_all_pixels_do():
    losses = torch.tensor([[3.0, 0.0, 1.0, 0.0]])
    for p, m, weight in ((1.3, 4.0, 0.25), (float("inf"), 1.0, 0.25), (1.3, 3.0, 0.0)):
        weights = solver.weights(losses, solver.solve(losses, p=p, m=m, share=False), p)
        assert weights[0, 1].item() == weight


def test_exactly_m_positive_losses_have_a_positive_root():
    losses = torch.tensor([[3.0, 0.0, 2.0, 0.0, 1.5]])
    assert float(solver.solve(losses, p=1.3, m=3.0, share=False).alpha) == pytest.approx(1.5, rel=1e-6)
    assert float(solver.solve(losses, p=1.3, m=3.5, share=False).alpha) == 0


@pytest.mark.parametrize("p", [1.0, 1.3, 10.0])
def test_two_ranks_with_the_same_losses_are_one_with_all_of_them_twice(p, path):  # noqa: F811
    losses = problems.losses(300)["log-normal 3"].view(3, 100)
    together = solver.solve(torch.cat([losses, losses], 1), p=p, m=0.3, share=True)

    def exchange(counts, sums):
        return 2 * counts, torch.stack([sums, sums])

    apart = solver.solve(losses, p=p, m=0.3, share=True, exchange=exchange)
    for name in ("value", "alpha", "tau", "valid"):
        torch.testing.assert_close(getattr(apart, name), getattr(together, name), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        solver.weights(losses, apart, p), solver.weights(losses, together, p), rtol=1e-5, atol=1e-9
    )
