"""The path of devices without a kernel, run on the CPU: few launches, always the same order, and no TF32."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import tolerances
from drop_in_table import INTEGERS
from kernel_ledger import Ledger
from losspool import PoolingStats, cross_entropy, max_pool, upsampled_cross_entropy
from losspool.solver import host


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)


def inputs(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 40, 56, generator=g).to(dtype).requires_grad_()
    coarse = torch.randn(2, 5, 6, 8, generator=g).to(dtype).requires_grad_()
    labels = torch.randint(0, 5, (2, 40, 56), generator=g)
    labels[0, :7] = 255
    return logits, coarse, labels


def losses(logits, coarse, labels):
    """Every function, with the tensor that its gradient is of."""
    per_pixel = logits.detach().abs().requires_grad_()
    return {
        "cross_entropy": (lambda: cross_entropy(logits, labels, ignore_index=255), logits),
        "upsampled": (lambda: upsampled_cross_entropy(coarse, labels, ignore_index=255), coarse),
        "max_pool": (lambda: max_pool(per_pixel, mask=per_pixel > 0.1), per_pixel),
    }


@pytest.mark.parametrize("name", ["cross_entropy", "upsampled", "max_pool"])
def test_launches(name):
    loss, tensor = losses(*inputs())[name]
    with Ledger() as counted:
        torch.autograd.grad(loss(), tensor)
    assert 50 < len(counted.names) <= 150


@pytest.mark.parametrize("half", [False, True])
def test_launches_with_options(half):
    logits, coarse, labels = inputs(torch.float16 if half else torch.float32)
    options = {"weight": torch.rand(5), "label_smoothing": 0.1, "trim": 0.1, "reduction": "pool"}
    for function, values in ((cross_entropy, logits), (upsampled_cross_entropy, coarse)):
        with Ledger() as counted:
            loss = function(values, labels.byte(), ignore_index=255, stats=PoolingStats(), **options)
            torch.autograd.grad(loss.sum(), values)
        assert len(counted.names) <= 200


def test_an_unsigned_label_is_not_void_because_it_wraps_around():
    """As uint8, 156 equals the default ignore_index of -100."""
    logits = torch.randn(1, 157, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.full((1, 4, 4), 156)
    found, expected = (torch.autograd.grad(cross_entropy(logits, each), logits)[0] for each in (labels.byte(), labels))
    assert torch.equal(found, expected)
    assert bool(expected.any())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_dtype_serves_as_labels(dtype):
    logits, _, labels = inputs()
    labels = labels.where(labels != 255, 100)
    found, expected = (cross_entropy(logits, each, ignore_index=100) for each in (labels.to(dtype), labels))
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(loss, logits)[0] for loss in (found, expected)))
    with pytest.raises(RuntimeError, match=r"losspool: target has labels outside \[0, 5\)"):
        cross_entropy(logits, labels.to(dtype))


@pytest.mark.parametrize("void", [None, -100])
def test_a_label_of_64_bits_is_not_void_because_it_wraps_around(void):
    logits, _, labels = inputs()
    target = labels.where(labels != 255, (void or -(2**63))).to(torch.uint64)
    with pytest.raises(RuntimeError, match=r"losspool: target has labels of 2\*\*63 or more"):
        cross_entropy(logits, target, ignore_index=void)


@pytest.mark.parametrize("bad", [1e30, -1e30, -(2.0**63), torch.inf, torch.nan, 0.5])
@pytest.mark.parametrize("void", [None, -100])
@pytest.mark.parametrize("function", [cross_entropy, upsampled_cross_entropy])
def test_a_float_that_is_no_label(function, void, bad):
    logits, coarse, labels = inputs()
    target = labels.where(labels != 255, 0).double()
    target[1, 2, 3] = bad
    with pytest.raises(RuntimeError, match="losspool: target has class indices that are not whole 64-bit numbers"):
        function(logits if function is cross_entropy else coarse, target, ignore_index=void)


def test_the_smallest_integer_is_not_void():
    logits, _, labels = inputs()
    labels[labels == 255] = -(2**63)
    with pytest.raises(RuntimeError, match=r"losspool: target has labels outside \[0, 5\)"):
        cross_entropy(logits, labels, ignore_index=None)


class SameOrder(TorchDispatchMode):
    """Fails at operators that torch calls non-deterministic on CUDA devices, and refuses there on request."""

    REFUSED = ("aten.upsample_bilinear2d_backward", "aten.histc", "aten.kthvalue", "aten.index_add", "aten.put_")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert not str(function).startswith(self.REFUSED), f"{function} adds up in any order"
        if str(function).startswith("aten.cumsum"):
            assert not args[0].is_floating_point(), f"{function} of floats adds up in any order"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["cross_entropy", "upsampled", "max_pool"])
def test_nothing_adds_up_in_any_order(name):
    loss, tensor = losses(*inputs())[name]
    with SameOrder():
        torch.autograd.grad(loss(), tensor)


def test_the_plain_way_to_upsample_does():
    _, coarse, labels = inputs()
    with SameOrder(), pytest.raises(AssertionError, match="in any order"):
        F.cross_entropy(F.interpolate(coarse, (40, 56), mode="bilinear"), labels, ignore_index=255).backward()


class TensorFloat32(TorchDispatchMode):
    """Rounds the factors of float32 products to ten bits, as GPUs do where the user allows it."""

    PRODUCTS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.matmul", "aten.baddbmm")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function).startswith(self.PRODUCTS):
            args = tree_map_only(torch.Tensor, _ten_bits, args)
        return function(*args, **(kwargs or {}))


def _ten_bits(tensor):
    if tensor.dtype != torch.float32:
        return tensor
    return ((tensor.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", ["cross_entropy", "upsampled", "max_pool"])
def test_products_are_not_rounded_to_tf32(name):
    loss, tensor = losses(*inputs())[name]
    exact, exact_tensor = losses(*inputs(torch.float64))[name]
    (truth,) = torch.autograd.grad(exact(), exact_tensor)
    with TensorFloat32():
        rounded = loss()
        (gradient,) = torch.autograd.grad(rounded, tensor)
    assert rounded.item() == pytest.approx(exact().item(), rel=tolerances.VALUE)
    atol = tolerances.GRADIENT * float(truth.abs().max())
    torch.testing.assert_close(gradient.double(), truth, rtol=0, atol=atol)


def test_a_plain_product_is_rounded():
    g = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 50, 50, generator=g).unbind()
    with TensorFloat32():
        product = left @ right
    assert (product - left @ right).abs().max() > 1e-3
