"""A hundredth of the generated problems of fuzz_pooling.py, and that it would notice."""

import math
from collections import Counter

import pytest
import torch

from faults.fuzz_pooling import DisagreementError, fuzz
from faults.pooling_problems import make
from losspool import solver
from losspool.ops.cross_entropy import _BlockwiseCrossEntropy, _FusedCrossEntropy
from losspool.ops.pooling import PoolLosses
from losspool.solver import optimum

PROBLEMS, SEED = 1000, 1


def test_1000_problems_of_every_kind_agree_with_the_reference():
    seen = Counter()
    for problem, _ in fuzz(PROBLEMS, SEED):
        near_one = 1 < problem.p <= 1.01
        seen.update([problem.values.dtype, problem.scope, type(problem.m), problem.mask is None, near_one])
        seen.update([float(problem.p)] if problem.p in (1, math.inf) else [])
        seen["not finite"] += int("not finite" in problem.kind)
        seen["zeros"] += int("zeros" in problem.kind)
        seen["weights"] += int("weight" in problem.options)
        seen["logits"] += int(problem.target is not None)
        seen["problems"] += 1
    assert seen["problems"] == PROBLEMS
    kinds = [torch.float16, torch.bfloat16, torch.float32, torch.float64, "image", "batch", "global", int, float]
    for kind in [*kinds, True, False, 1.0, math.inf, "not finite", "zeros", "weights", "logits"]:
        assert seen[kind] >= 20, kind


def test_a_problem_is_the_same_every_time():
    assert str(make(SEED, 7)) == str(make(SEED, 7)) != str(make(SEED + 1, 7))


def _slightly_larger(real):
    def optimum_of_a_pool(*arguments):
        value, alpha, tau, *rest = real(*arguments)
        return value * (1 + 1e-5), alpha, tau * (1 + 1e-5), *rest

    return optimum_of_a_pool


def _without_alpha(real):
    return lambda losses, solution, p: real(losses, solution._replace(shift=torch.zeros_like(solution.shift)), p)


def _blind_to_infinity(real):
    def solve(*arguments, **options):
        solution = real(*arguments, **options)
        return solution._replace(scale=solution.tau)

    return solve


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (optimum, "_optimum", _slightly_larger),
        (solver, "weights", _without_alpha),
        (solver, "solve", _blind_to_infinity),
    ],
)
def test_a_solver_that_is_wrong_is_noticed(monkeypatch, module, name, wrong):
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    with pytest.raises(DisagreementError, match=r"problem \d+: "):
        list(fuzz(200, SEED))


def _a_little_is_lost(gradient):
    """A billionth of the largest: nothing to an absolute tolerance of ten billionths, which is torch's own."""
    return gradient - 1e-9 * gradient.nan_to_num().abs().amax() if gradient.numel() else gradient


def _a_class_is_favoured(gradient):
    return torch.cat([gradient[:, :1] * 1.001, gradient[:, 1:]], 1)


@pytest.mark.parametrize(
    ("functions", "wrong", "reported"),
    [
        ([PoolLosses], _a_little_is_lost, "the weights over the number of pools"),
        ([_BlockwiseCrossEntropy, _FusedCrossEntropy], _a_class_is_favoured, "that of the weighted pixel losses"),
    ],
)
def test_a_gradient_that_is_wrong_is_noticed(monkeypatch, functions, wrong, reported):
    for function in functions:

        def backward(ctx, *grads, real=function.backward):
            gradient, *rest = real(ctx, *grads)
            return (wrong(gradient), *rest)

        monkeypatch.setattr(function, "backward", staticmethod(backward))
    with pytest.raises(DisagreementError, match=f"the gradient is not {reported}"):
        list(fuzz(400, SEED))
