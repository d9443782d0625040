"""torch.compile(fullgraph=True): the same values, whatever the shapes, options and scopes.

Where the backend is "aot_eager" the graph is what is tested; code is generated for the others' graphs.
"""

import math

import numpy as np
import pytest
import torch

import problems
from losspool import CrossEntropyLoss, LossMaxPooling, PoolingStats, UpsampledCrossEntropyLoss, cross_entropy, max_pool

WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])
OPTIONS = [
    {"p": 1, "m": 50, "weight": WEIGHT},
    {"p": 2.0, "scope": "batch", "label_smoothing": 0.1},
    {"weight": WEIGHT, "label_smoothing": 0.2},
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


def batch(shape, fine=None, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(shape, generator=g)).to(dtype).requires_grad_()
    labels = torch.randint(0, shape[1], (shape[0], *(fine or shape[2:])), generator=g)
    labels[torch.rand(labels.shape, generator=g) < 0.1] = 255
    return logits, labels


def assert_same(eager, compiled, logits, labels):
    expected, got = eager(logits, labels), compiled(logits, labels)
    assert got.dtype == expected.dtype
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)
    (wanted,), (gradient,) = torch.autograd.grad(expected, logits), torch.autograd.grad(got, logits)
    assert gradient.dtype == wanted.dtype
    eps = max(torch.finfo(wanted.dtype).eps, 1e-5)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=eps * float(wanted.abs().max()))


@pytest.mark.parametrize("options", OPTIONS[1:])
def test_cross_entropy(options):
    criterion = CrossEntropyLoss(ignore_index=255, **options)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    assert_same(criterion, compiled, *batch((2, 5, 40, 30)))


def test_one_compilation_serves_all_shapes_and_values():
    criterion = CrossEntropyLoss(ignore_index=255, **OPTIONS[0])
    compiled = torch.compile(criterion, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape in ((2, 5, 40, 30), (3, 5, 17, 64), (4, 5, 33, 31)):
            assert_same(criterion, compiled, *batch(shape))
        assert_void_and_not_finite_are_told_apart(criterion, compiled)
        logits, labels = batch((2, 5, 40, 30))
        labels[1, 7, 7] = 5
        with pytest.raises(RuntimeError, match=r"labels outside \[0, 5\)"):
            compiled(logits, labels)


def assert_void_and_not_finite_are_told_apart(criterion, compiled):
    logits, labels = batch((2, 5, 40, 30))
    labels[0, 3] = 255
    with torch.no_grad():
        logits[0, :, 3] = float("nan")
    assert_same(criterion, compiled, logits, labels)
    labels[0, 3] = 1
    loss = compiled(logits, labels)
    loss.backward()
    assert not loss.isfinite()
    assert not logits.grad.isfinite().all()
    nothing = compiled(logits, torch.full_like(labels, 255))
    (gradient,) = torch.autograd.grad(nothing, logits)
    assert nothing.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize(
    ("dtype", "backend"), [(torch.bfloat16, "inductor"), (torch.float16, "aot_eager"), (torch.float64, "aot_eager")]
)
def test_other_precisions(dtype, backend):
    criterion = CrossEntropyLoss(ignore_index=255)
    compiled = torch.compile(criterion, fullgraph=True, backend=backend)
    assert_same(criterion, compiled, *batch((2, 5, 40, 30), dtype=dtype))


def test_upsampled():
    criterion = UpsampledCrossEntropyLoss(ignore_index=255, align_corners=True, **OPTIONS[2])
    assert_same(criterion, torch.compile(criterion, fullgraph=True), *batch((2, 5, 6, 5), fine=(48, 40)))


def test_stats():
    criterion = CrossEntropyLoss(ignore_index=255)
    logits, labels = batch((2, 5, 40, 30))
    eager, compiled = PoolingStats(), PoolingStats()
    criterion(logits, labels, stats=eager)
    torch.compile(criterion, fullgraph=True, backend="aot_eager")(logits, labels, stats=compiled)
    assert torch.equal(compiled.prediction, eager.prediction)
    torch.testing.assert_close(compiled.weights, eager.weights)
    torch.testing.assert_close(compiled.alpha, eager.alpha)
    assert torch.equal(compiled.saturated, eager.saturated)


NUMBERS = {
    "m": np.float64(0.25),
    "p": np.float32(1.5),
    "trim": np.float64(0.25),
    "ignore_index": np.int64(1),
    "label_smoothing": np.float64(0.25),
}


def test_numbers_of_numpy():
    """A module makes Python's of them. As arguments they are arrays of the graph, whose values are not known."""
    logits, labels = (each.clamp(max=4) if each.dtype == torch.int64 else each for each in batch((2, 5, 8, 6)))
    module = CrossEntropyLoss(**NUMBERS)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert compiled(logits, labels).item() == pytest.approx(module(logits, labels).item(), rel=1e-6)

    def call(given):
        return cross_entropy(logits, labels, **given)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for name, value in NUMBERS.items():
        with pytest.raises(
            RuntimeError, match=rf"{name} must be a Python number inside torch.compile, .* got ndarray; pass"
        ):
            compiled({name: value})
        torch.compiler.reset()
    numbers = {name: value.item() for name, value in NUMBERS.items()}
    assert compiled(numbers).item() == pytest.approx(call(numbers).item(), rel=1e-6)


def test_a_class_that_is_ruled_out_of_enlarged_logits():
    criterion = UpsampledCrossEntropyLoss(ignore_index=255)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    logits, labels = batch((2, 5, 6, 5), fine=(48, 40))
    with torch.no_grad():
        logits[:, 2, 1:4] = -float("inf")
    labels[labels == 2] = 3
    assert_same(criterion, compiled, logits, labels)
    labels[0, 20, 20] = 2  # where it is ruled out
    for loss in (criterion, compiled):
        assert loss(logits, labels).item() == float("inf")


def test_any_loss_inside_a_larger_graph():
    pooling = LossMaxPooling(p=1.3, m=0.25)

    def step(x):
        return pooling(torch.nn.functional.smooth_l1_loss(x, torch.zeros_like(x), reduction="none").sum(1))

    x = torch.randn(2, 3, 20, 20, requires_grad=True)
    got, expected = torch.compile(step, fullgraph=True)(x), step(x)
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss in (got, expected)))


@pytest.mark.parametrize(
    ("p", "m", "backend"), [(1.0, 1, "aot_eager"), (1.3, 0.25, "inductor"), (math.inf, 1.0, "aot_eager")]
)
def test_pooling_is_equal_to_the_bit_on_the_whole_matrix(p, m, backend):
    """Pooling is one operator to the compiler: a few p and m stand for all of them."""
    compiled = torch.compile(LossMaxPooling(p=p, m=m), fullgraph=True, dynamic=True, backend=backend)
    for n in problems.SIZES if backend == "aot_eager" else problems.SIZES[1:]:  # a size of 1 is a graph of its own
        pixels = m if isinstance(m, int) else min(max(m * n, 1.0), float(n))
        rows = torch.stack([losses for _, losses, count in problems.matrix(n) if count == pixels])
        eager, graph = (rows.clone().requires_grad_() for _ in range(2))
        expected, got = max_pool(eager, p=p, m=m), compiled(graph)
        expected.backward()
        got.backward()
        assert torch.equal(expected, got), n
        assert torch.equal(eager.grad, graph.grad), n
