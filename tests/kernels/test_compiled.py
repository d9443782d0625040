"""torch.compile(fullgraph=True): the kernels are operators of the graph, and give the same bits."""

import pytest
import torch

from kernel_cases import labels_of, logits_of
from losspool import CrossEntropyLoss, LossMaxPooling, PoolingStats, UpsampledCrossEntropyLoss


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


class Operators:
    """A backend that notes the operators of the graphs it gets, forward and backward."""

    def __init__(self):
        self.names = []

    def __call__(self, graph, inputs):
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        def note(module, _):
            self.names += [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
            return make_boxed_func(module.forward)

        return aot_autograd(fw_compiler=note, bw_compiler=note)(graph, inputs)


def assert_same(criterion, *inputs, dynamic=None):
    backend = Operators()
    compiled = torch.compile(criterion, fullgraph=True, backend=backend, dynamic=dynamic)
    results = []
    for call in (criterion, compiled):
        loss = call(*inputs)
        results.append((loss, *torch.autograd.grad(loss, inputs[0])))
    for eager, traced in zip(*results, strict=True):
        assert torch.equal(eager, traced)
    return [name for name in backend.names if name.startswith("losspool.")]


def test_cross_entropy():
    names = assert_same(CrossEntropyLoss(ignore_index=255), logits_of((2, 5, 6, 5)), labels_of((2, 6, 5)))
    assert names == [f"losspool.{name}.default" for name in ("pixel_losses", "pool_losses", "logits_gradient")]


def test_options():
    options = {"weight": torch.rand(5), "label_smoothing": 0.1, "scope": "batch", "p": 1, "m": 9}
    assert assert_same(CrossEntropyLoss(ignore_index=255, **options), logits_of((2, 5, 6, 5)), labels_of((2, 6, 5)))


def test_upsampled():
    criterion = UpsampledCrossEntropyLoss(ignore_index=255)
    names = assert_same(criterion, logits_of((1, 5, 2, 3)), labels_of((1, 7, 8)), dynamic=True)
    assert names == [f"losspool.{name}.default" for name in ("pixel_losses", "pool_losses", "logits_gradient")]


def test_max_pool():
    losses = torch.rand(2, 30, requires_grad=True)
    names = assert_same(LossMaxPooling(), losses)
    assert names == ["losspool.pool_losses.default", "losspool.losses_gradient.default"]


def test_stats():
    logits, labels = logits_of((2, 5, 6, 5)), labels_of((2, 6, 5))
    criterion, eager, traced = CrossEntropyLoss(ignore_index=255), PoolingStats(), PoolingStats()
    criterion(logits, labels, stats=eager)
    torch.compile(criterion, fullgraph=True, backend="aot_eager")(logits, labels, stats=traced)
    for name in ("alpha", "tau", "valid", "saturated", "weights", "prediction"):
        assert torch.equal(getattr(eager, name), getattr(traced, name)), name


def test_fake_operators_agree_with_real_ones():
    from torch.library import opcheck

    losses = torch.rand(2, 20)
    arguments = (losses, losses > 0.1, 1.3, 0.25, True, False)
    opcheck(torch.ops.losspool.pool_losses.default, arguments, test_utils=("test_schema", "test_faketensor"))
    logits, target = logits_of((1, 3, 2, 2)).detach(), labels_of((1, 12), classes=3).clamp(max=2)
    arguments = (logits, target, None, -100, 0.0, True, [3, 4], False)
    opcheck(torch.ops.losspool.pixel_losses.default, arguments, test_utils=("test_schema", "test_faketensor"))
