"""Bad arguments: one sentence that names what was received. And what counts as good."""

import math

import pytest
import torch
import torch.nn.functional as F

import drop_in_table
from losspool import (
    CrossEntropyLoss,
    LossMaxPooling,
    PoolingStats,
    UpsampledCrossEntropyLoss,
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    pooling_weights,
    upsampled_cross_entropy,
)

LOGITS, LABELS = torch.randn(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.long)
LOSSES = torch.rand(2, 4, 5)

BAD_SETTINGS = [
    ({"p": 0.5}, ValueError, r"p must be at least 1 .* got 0\.5"),
    ({"p": math.nan}, ValueError, "p must be at least 1 .* got nan"),
    ({"p": "1.3"}, TypeError, "p must be a number .* got '1.3' of type str"),
    ({"p": True}, TypeError, "p must be a number .* got True of type bool"),
    ({"m": 0}, ValueError, "m as an int .* at least 1, got 0"),
    ({"m": -3}, ValueError, "m as an int .* got -3"),
    ({"m": 0.0}, ValueError, r"m as a float .* got 0\.0"),
    ({"m": 1.5}, ValueError, r"m as a float .* got 1\.5; pass a count as an int"),
    ({"m": math.nan}, ValueError, "m as a float .* got nan"),
    ({"m": True}, TypeError, "got True of type bool"),
    ({"m": "a quarter"}, TypeError, "got 'a quarter' of type str"),
    ({"m": "0%"}, ValueError, r"more than 0% and at most 100%, or at least 1px, got '0%'"),
    ({"trim": 1.0}, ValueError, r"trim .* in \[0, 1\), got 1\.0"),
    ({"trim": "5px"}, TypeError, "trim must be a number .* got '5px' of type str"),
    ({"trim": "100%"}, ValueError, r"trim .* in \[0, 1\), got '100%'"),
    ({"scope": "pixel"}, ValueError, "scope must be one of 'image', 'batch', 'global', got 'pixel'"),
    ({"scope": "image", "group": object()}, ValueError, 'only used with scope="global", got scope=.image'),
    ({"scope": "global", "group": object()}, ValueError, "torch.distributed is not initialised"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_SETTINGS)
def test_bad_settings(options, error, message):
    for call in (
        lambda: cross_entropy(LOGITS, LABELS, **options),
        lambda: upsampled_cross_entropy(LOGITS, LABELS, **options),
        lambda: max_pool(torch.rand(2, 5), **options),
        lambda: pooling_weights(torch.rand(2, 5), **options),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(("options", "error", "message"), [row for row in BAD_SETTINGS if "group" not in row[0]])
def test_modules_refuse_bad_settings_when_they_are_made(options, error, message):
    for module in (CrossEntropyLoss, UpsampledCrossEntropyLoss, LossMaxPooling):
        with pytest.raises(error, match=message):
            module(**options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cross_entropy([1.0], LABELS), TypeError, "input must be a tensor, got list"),
        (lambda: cross_entropy(LOGITS, None), TypeError, "target must be a tensor, got NoneType"),
        (lambda: cross_entropy(LOGITS.long(), LABELS), TypeError, "floating-point dtype .*got torch.int64"),
        (lambda: cross_entropy(LOGITS[0, 0, 0], LABELS), ValueError, r"shape \(B, C, ...\), got \(5,\)"),
        (
            lambda: cross_entropy(LOGITS, LABELS[:1]),
            ValueError,
            r"have shape \(2, 4, 5\) .*\(1, 4, 5\)",
        ),
        (lambda: cross_entropy(LOGITS, LABELS + 0j), TypeError, "floats or bools, got torch.complex64"),
        (lambda: cross_entropy(LOGITS, LOGITS), ValueError, "class probabilities must not be negative, got -"),
        (lambda: cross_entropy(LOGITS[:, :0], LABELS), ValueError, "at least one class"),
        (lambda: cross_entropy(LOGITS[..., 0, 0], LABELS[:, 0, 0]), ValueError, r'use scope="batch"'),
        (lambda: cross_entropy(LOGITS, LABELS, weight=torch.ones(4)), ValueError, r"shape \(3,\), .* got \(4,\)"),
        (
            lambda: cross_entropy(LOGITS, LABELS, weight=[1.0, "a", 1]),
            TypeError,
            "a list of numbers, got .1.0, .a",
        ),
        (lambda: cross_entropy(LOGITS, LABELS, {0: 1.0, 1: 5.0, 2: 1.0}), TypeError, "numbers in order, got {0: 1.0,"),
        (lambda: CrossEntropyLoss("151"), TypeError, "numbers in order, got '151'"),
        (lambda: CrossEntropyLoss({1.0, 2.0, 5.0}), TypeError, "a list of numbers in order, got {"),
        (lambda: cross_entropy(LOGITS, LABELS, weight=torch.ones(3).long()), TypeError, "got torch.int64"),
        (lambda: cross_entropy(LOGITS, LABELS, weight=torch.tensor([1.0, -2, 1])), ValueError, r"negative, got -2\.0"),
        (lambda: cross_entropy(LOGITS, LABELS, weight=torch.ones(3, requires_grad=True)), ValueError, "requires grad"),
        (lambda: cross_entropy(LOGITS, LABELS, label_smoothing=1.5), ValueError, r"in \[0, 1\], got 1\.5"),
        (lambda: cross_entropy(LOGITS, LABELS, label_smoothing=-0.1), ValueError, r"in \[0, 1\], got -0\.1"),
        (lambda: cross_entropy(LOGITS, LABELS, label_smoothing="a"), TypeError, "got 'a'"),
        (lambda: cross_entropy(LOGITS, LABELS, ignore_index=2.0), TypeError, r"must be an int, got 2\.0"),
        (lambda: cross_entropy(LOGITS, LABELS - 1), ValueError, "label -1, but there are 3 classes"),
        (lambda: max_pool([1.0]), TypeError, "losses must be a tensor, got list"),
        (lambda: pooling_weights([1.0]), TypeError, "losses must be a tensor, got list"),
        (lambda: max_pool({"loss": LOSSES}), TypeError, r"got dict; index it, such as losses\['loss'\]"),
        (lambda: max_pool(LOSSES.numpy()), TypeError, r"got ndarray; convert it: torch.from_numpy\(losses\)"),
        (lambda: max_pool(torch.ones(2, 3).long()), TypeError, "floating-point dtype .*got torch.int64"),
        (lambda: max_pool(torch.tensor(1.0)), ValueError, "at least one dimension"),
        (lambda: max_pool(torch.ones(3)), ValueError, r'none in losses of shape \(3,\); use scope="batch"'),
        (lambda: max_pool(torch.tensor([[1.0, -0.5]])), ValueError, r"losses must not be negative, got -0\.5"),
        (lambda: max_pool(torch.ones(2, 3), mask=torch.ones(2, 3)), TypeError, "got torch.float32"),
        (lambda: max_pool(torch.ones(2, 3), mask=torch.ones(2).bool()), ValueError, r"\(2,\), .* losses .* \(2, 3\)"),
        (lambda: CrossEntropyLoss(weight=torch.tensor([-1.0])), ValueError, "class weights must not be negative"),
        (lambda: max_pool(torch.tensor([[math.nan], [-1.0]])), ValueError, r"not be negative, got -1\.0"),
        (lambda: max_pool(torch.ones(2, 3).to(torch.float8_e5m2)), TypeError, "got torch.float8_e5m2"),
        (lambda: max_pool(torch.ones(2, 3), stats={}), TypeError, r"losspool.PoolingStats, got dict"),
        (lambda: cross_entropy(LOGITS, LABELS, stats=PoolingStats), TypeError, "an instance of .* got PoolingStats"),
        (lambda: cross_entropy(LOGITS, LABELS, ignore_index=2**70), ValueError, "fit in a 64-bit integer, got 1180591"),
        (lambda: cross_entropy(LOGITS, LABELS, weight=torch.ones(3) / 0), ValueError, "must be finite, got inf"),
        (lambda: CrossEntropyLoss(weight=torch.ones(3, 3)), ValueError, r"one dimension, .* got \(3, 3\)"),
        (lambda: CrossEntropyLoss(ignore_index="x"), TypeError, "ignore_index must be an int, got 'x'"),
        (lambda: UpsampledCrossEntropyLoss(align_corners="x"), TypeError, "must be a bool, got 'x'"),
        (lambda: CrossEntropyLoss(label_smoothing=2.0), ValueError, r"in \[0, 1\], got 2\.0"),
    ],
)
def test_bad_tensors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", drop_in_table.INTEGERS)
@pytest.mark.parametrize("function", [cross_entropy, upsampled_cross_entropy])
def test_every_integer_dtype_serves_as_labels(function, dtype):
    labels = torch.randint(0, 3, (2, 4, 5))
    labels[0, 0] = 100
    logits = LOGITS.clone().requires_grad_()
    found, expected = (function(logits, each, ignore_index=100) for each in (labels.to(dtype), labels))
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(loss, logits)[0] for loss in (found, expected)))
    with pytest.raises(ValueError, match="label 100, but there are 3 classes"):
        function(LOGITS, labels.to(dtype))


@pytest.mark.parametrize("dtype", [dtype for dtype in drop_in_table.INTEGERS if dtype != torch.int8])
def test_a_label_is_not_void_because_it_wraps_around(dtype):
    """156 is what -100 becomes in eight bits, and so on."""
    bits = torch.iinfo(dtype).bits
    wrapped = 2**bits - 100 if torch.iinfo(dtype).min == 0 else 156
    target = torch.tensor(wrapped, dtype=dtype).expand(2, 4, 5)
    for void in (-100, None):
        with pytest.raises(ValueError, match=rf"label {wrapped}, but there are 3 classes .* ignore_index is {void}$"):
            cross_entropy(LOGITS, target, ignore_index=void)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bits8, torch.int4, torch.float4_e2m1fn_x2])
def test_targets_of_no_use(dtype):
    for function in (cross_entropy, binary_cross_entropy_with_logits):
        with pytest.raises(TypeError, match=f"target must hold integers of 8 to 64 bits, floats or bools, got {dtype}"):
            function(LOGITS, torch.empty(2, 4, 5, dtype=dtype))


def test_int_and_float_settings():
    losses = torch.rand(1, 8)
    assert max_pool(losses, p=2, m=8) == max_pool(losses, p=2.0, m=1.0)
    assert max_pool(losses, p=1, m=1).item() == losses.max().item()
    assert max_pool(losses, p=1, m=1e-9).item() == losses.max().item(), "m is never below one pixel"
    assert max_pool(losses, m=100) == max_pool(losses, m=1.0), "and capped at n"
    assert max_pool(losses, m=10**400) == max_pool(losses, m=1.0)
    assert max_pool(losses, p=10**400) == max_pool(losses, p=math.inf)


def test_scopes():
    losses = torch.rand(3, 4, 5)
    each = torch.stack([max_pool(losses[i : i + 1]) for i in range(3)])
    assert max_pool(losses).item() == pytest.approx(each.mean().item())
    whole = max_pool(losses, scope="batch")
    assert torch.equal(whole, max_pool(losses.reshape(1, -1)))
    assert torch.equal(whole, max_pool(losses, scope="global")), "without a process group"
    assert torch.equal(whole, max_pool(losses.flatten(), scope="batch"))


def test_batch_scope_of_everything_is_plain_cross_entropy():
    labels = torch.randint(0, 3, (2, 4, 5))
    labels[0, :2] = 255
    ours = cross_entropy(LOGITS, labels, m=1.0, scope="batch", ignore_index=255)
    assert ours.item() == pytest.approx(F.cross_entropy(LOGITS, labels, ignore_index=255).item(), rel=1e-6)
    assert cross_entropy(LOGITS[..., 0, 0], labels[:, 3, 0], scope="batch", m=1.0).item() == pytest.approx(
        F.cross_entropy(LOGITS[..., 0, 0], labels[:, 3, 0]).item(), rel=1e-6
    )


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 0, 5), (0, 3, 0)])
def test_empty_batches(shape):
    for scope in ("image", "batch"):
        logits = torch.zeros(shape, requires_grad=True)
        loss = cross_entropy(logits, torch.zeros(shape[0], *shape[2:]).long(), scope=scope)
        loss.backward()
        assert loss.item() == 0
        assert logits.grad.shape == shape
    assert max_pool(torch.zeros(0, 4)).item() == 0


def test_class_weight_is_a_buffer():
    weight = torch.tensor([1.0, 2.0, 3.0])
    criterion = CrossEntropyLoss(weight=weight)
    assert torch.equal(criterion.state_dict()["weight"], weight)
    assert criterion.double().weight.dtype == torch.float64
    assert torch.equal(criterion(LOGITS, LABELS), cross_entropy(LOGITS, LABELS, weight=weight))
    assert "p=1.3, m=0.25" in repr(criterion)
