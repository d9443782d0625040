"""The solver's kernels against the float64 reference, on the hard matrix."""

import math

import pytest
import torch
from triton.runtime.errors import InterpreterError

import problems
import tolerances
from kernel_cases import assert_exact, solved
from losspool import PoolingStats, max_pool, pooling_weights
from losspool.kernels import solve

PAIRS = [(1.0, 0.25), (1.001, 0.1), (1.3, 0.25), (1000.0, 0.9)]
UNIFORM = [(math.inf, 50.0), (1.3, 100.0)]


@pytest.mark.parametrize(("p", "share"), PAIRS)
def test_hard_matrix(p, share):
    named = dict(list(problems.losses(100).items())[: 17 if p == 1.3 else 9])  # scripts/kernel_matrix.py takes all
    assert_exact(list(named), torch.stack(list(named.values())), p, share * 100)


@pytest.mark.parametrize(("p", "m"), UNIFORM)
def test_every_pixel_counts_alike(p, m):
    names = ["log-normal 6", "99% zeros", "huge"]
    assert_exact(names, torch.stack([problems.losses(100)[name] for name in names]), p, m)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_losses(n):
    for names, rows, m in problems.stacked(n):
        if m in (1.0, 0.9 * n):
            assert_exact(names[::5], rows[::5].contiguous(), 1.3, m)


@pytest.mark.parametrize("positives", [4, 5, 6])
def test_about_as_many_positive_losses_as_m(positives):
    losses = torch.where(torch.arange(30) < positives, problems.losses(30)["exponential"], 0.0)
    for p in (1.0, 1.3, 10.0):
        assert_exact([f"{positives} positives"], losses[None], p, 5.0)


@pytest.mark.parametrize(("n", "share"), problems.CRUMBS[::2])
def test_m_as_a_share_of_the_pixels(n, share):
    """The room that is left at some loss may be a rounding error."""
    rows = torch.stack([problems.losses(n)[name] for name in ("uniform", "log-normal 3")])
    for p in (1.0, 1.001):
        assert_exact(["uniform", "log-normal 3"], rows, p, share, share=True)


@pytest.fixture
def many_programs(monkeypatch):
    """Pools of several programs, chunks and tiles, and more pools than are solved at once."""
    for name, value in (("BLOCK", 16), ("TILES", 2), ("_MOST_PROGRAMS", 4), ("_MOST_POOLS", 2)):
        monkeypatch.setattr(solve, name, value)


def test_large_pools_are_split(many_programs):
    named = problems.losses(150)
    rows = torch.stack([named[name] for name in ("log-normal 3", "near ties", "denormals")])
    assert_exact(["split"] * 3, rows, 1.3, 50.0)


def test_repetition_is_exact(many_programs):
    rows = problems.losses(130)["log-normal 6"][None].repeat(2, 1)
    results = [solved(rows, 1.1, 0.25, share=True) for _ in range(2)]
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first[0], first[1])


def test_special_pools():
    """No valid pixel, inf, NaN, zeros, one valid pixel; -0.0 is a zero loss; void pixels may hold anything."""
    inf, nan = math.inf, math.nan
    losses = torch.tensor(
        [
            [inf, nan, -1.0, 0.0, 5.0, 2.0],
            [1.0, 2.0, inf, 0.0, -1.0, 3.0],
            [1.0, nan, 2.0, inf, 4.0, 5.0],
            [0.0, -0.0, 0.0, 0.0, -0.0, 0.0],
            [nan, -inf, 5.0, -5.0, inf, 0.0],
            [-0.0, 3.0, 1.0, 0.0, -0.0, 2.0],
        ]
    )
    mask = torch.ones_like(losses, dtype=torch.bool)
    mask[0], mask[1, 4], mask[4] = False, False, torch.tensor([0, 0, 1, 0, 0, 0]) > 0
    kernel, tensor = PoolingStats(), PoolingStats()
    for row in range(6):
        got = max_pool(losses[row : row + 1], mask=mask[row : row + 1], stats=kernel)
        wanted = max_pool(losses[row : row + 1].double(), mask=mask[row : row + 1], stats=tensor)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-6, atol=0, equal_nan=True)
        for name in ("alpha", "tau", "valid", "saturated"):
            torch.testing.assert_close(getattr(kernel, name), getattr(tensor, name), equal_nan=True)
        torch.testing.assert_close(kernel.weights.double(), tensor.weights, rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scope", ["image", "batch"])
def test_max_pool_has_the_gradient_of_float64(dtype, scope):
    g = torch.Generator().manual_seed(0)
    losses = torch.rand(3, 7, 5, generator=g).to(dtype).requires_grad_()
    mask = torch.rand(3, 7, 5, generator=g) < 0.8
    mask[1] = scope == "batch"
    exact = losses.detach().double().requires_grad_()
    loss = max_pool(losses, mask=mask, m=4, scope=scope)
    loss.backward(torch.tensor(3.0))
    truth = max_pool(exact, mask=mask, m=4, scope=scope)
    truth.backward(torch.tensor(3.0, dtype=torch.float64))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(truth.item(), rel=1e-6)
    assert losses.grad.dtype == dtype
    atol = max(torch.finfo(dtype).eps, tolerances.GRADIENT) * float(exact.grad.abs().max())
    torch.testing.assert_close(losses.grad.double(), exact.grad, rtol=0, atol=atol)


def test_strided_losses_and_empty_batches():
    losses = torch.rand(4, 6, 9)[:, ::2].transpose(1, 2)
    torch.testing.assert_close(pooling_weights(losses).double(), pooling_weights(losses.double()), rtol=0, atol=1e-6)
    for shape in ((0, 5), (3, 0), (0, 0)):
        empty = torch.zeros(shape, requires_grad=True)
        loss = max_pool(empty)
        loss.backward()
        assert loss.item() == 0
        assert empty.grad.shape == shape


def test_a_negative_loss_is_refused():
    losses = torch.tensor([[1.0, -1e-30, 2.0]])
    with pytest.raises(InterpreterError, match="losspool: losses must not be negative"):
        max_pool(losses)
    assert max_pool(losses, mask=losses >= 0, m=1, p=1).item() == 2
