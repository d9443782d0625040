"""The hard matrix in seconds: what a changed solver does not survive (`make mutants` runs it on each mutant)."""

import pytest
import torch

import problems
from losspool import census, reference, solver
from test_exactness import assert_exact, path, solved  # noqa: F401


@pytest.mark.parametrize("n", [1, 7, 60])
def test_solver(n, path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(census, "_BLOCK", 16)
    for name, losses, m in problems.matrix(n):
        for p in (1.0, 1.001, 1.3, 10.0) if path == "host" else (1.0, 1.3):
            assert_exact(losses, p, m, reference.pool(losses, p=p, m=m), name)


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
        value = float(solver.solve(losses, p=1.7, m=m, share=share).value)
        assert value == pytest.approx(reference.pool(losses, p=1.7, m=pixels).value, rel=1e-6)
