"""Inputs of the tests of the kernels, and what exact means for the solver's."""

import pytest
import torch

import tolerances
from losspool import reference
from losspool.kernels import operators, pooling, solve


def labels_of(shape, classes=5, dtype=torch.int64, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, shape, generator=g)
    return labels.masked_fill(torch.rand(shape, generator=g) < 0.1, 255).to(dtype)


def logits_of(shape, dtype=torch.float32, scale=3.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=g)).to(dtype).requires_grad_()


def solved(rows, p, m, share=False):
    _, table, _ = solve.solve(rows, None, p, m, share, from_logits=False)
    return table, operators.pixel_weights(rows, None, table, p)


def assert_exact(names, rows, p, m, share=False):
    table, weights = solved(rows, p, m, share)
    for name, losses, row, found in zip(names, rows, table, weights, strict=True):
        truth = reference.pool(losses, p=p, m=m * len(losses) if share else m)
        value, width = float(row[pooling.VALUE.value].float()), float(row[pooling.WIDTH.value])
        allowed = max(tolerances.VALUE * truth.value, tolerances.one_ulp(truth.value))
        assert abs(value - truth.value) <= allowed, (name, p, m, value, truth.value)
        errors = (found.double() - truth.weights).abs()[losses > 0] / truth.tau
        assert (errors <= tolerances.weight(p)).all(), (name, p, m, errors.max())
        assert width <= 1, f"{name}, p = {p}, m = {m}: the search ended with {width} floats left"


def assert_float64(function, logits, labels, tolerance=tolerances.GRADIENT, **options):
    """Value and gradient of the kernels are those of float64, up to the rounding of the logits' dtype."""
    options = {"ignore_index": 255, **options}
    exact = logits.detach().double().requires_grad_()
    loss = function(logits, labels, **options)
    truth = function(exact, labels.long(), **options)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(truth.item(), rel=1e-6)
    (got,), (expected,) = torch.autograd.grad(3 * loss, logits), torch.autograd.grad(3 * truth, exact)
    assert got.dtype == logits.dtype
    atol = max(torch.finfo(got.dtype).eps, tolerance) * float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=atol)
    return got
