"""Cross-entropy from logits, full-size and upsampled, against float64 tensor operations: values, gradients, statistics.

Float64 never takes the kernels, so the same public function gives the truth.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from triton.runtime.errors import InterpreterError

from kernel_cases import assert_float64, labels_of, logits_of
from losspool import PoolingStats, binary_cross_entropy_with_logits, cross_entropy, upsampled_cross_entropy

WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])
OPTIONS = [
    {},
    {"scope": "batch", "p": 1.0, "m": 7},
    {"weight": WEIGHT, "p": 2.0},
    {"label_smoothing": 0.1, "m": 1.0},
    {"weight": WEIGHT.double(), "label_smoothing": 0.2, "scope": "global", "p": math.inf},
]
SIZES = [((3, 4), (13, 15)), ((3, 3), (3, 3)), ((1, 1), (3, 4)), ((2, 20), (3, 41)), ((3, 1), (10, 2))]


@pytest.mark.parametrize("options", OPTIONS)
def test_options(options):
    assert_float64(cross_entropy, logits_of((2, 5, 6, 9)), labels_of((2, 6, 9)), **options)


@pytest.mark.parametrize("options", OPTIONS[2:])
def test_options_of_upsampled(options):
    assert_float64(upsampled_cross_entropy, logits_of((1, 5, 2, 3)), labels_of((1, 7, 9)), **options)


@pytest.mark.parametrize(
    ("coarse", "fine", "align_corners"), [(*SIZES[0], True), (*SIZES[2], True), *((*size, False) for size in SIZES)]
)
def test_sizes_of_upsampled(coarse, fine, align_corners):
    logits, labels = logits_of((1, 9, *coarse)), labels_of((1, *fine), classes=9)
    assert_float64(upsampled_cross_entropy, logits, labels, align_corners=align_corners)


@pytest.mark.parametrize("options", OPTIONS)
def test_many_classes_are_left_to_torch(options, monkeypatch):
    """And the kernels pool the losses."""
    from losspool.kernels import operators
    from losspool.ops import cross_entropy as module

    monkeypatch.setattr(module, "_MOST_CLASSES", 4)
    monkeypatch.delattr(operators, "pixel_losses")
    rows, labels = logits_of((40, 5)), labels_of((40,))
    assert_float64(cross_entropy, logits_of((2, 5, 6, 9)), labels_of((2, 6, 9)), **options)
    assert_float64(cross_entropy, rows, labels, **{**options, "scope": "batch"})
    with pytest.raises(ValueError, match="label 255, but there are 5 classes"):
        cross_entropy(rows, labels, scope="batch")
    with pytest.raises(ValueError, match="weight"):
        cross_entropy(rows, labels, WEIGHT - 1, ignore_index=255, scope="batch")


def test_a_huge_image_needs_wide_positions(monkeypatch):
    from losspool.kernels import operators

    monkeypatch.setattr(operators, "_WIDE", 0)
    assert_float64(upsampled_cross_entropy, logits_of((1, 3, 3, 4)), labels_of((1, 9, 11), classes=3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    assert_float64(cross_entropy, logits_of((1, 5, 30), dtype), labels_of((1, 30)))
    assert_float64(upsampled_cross_entropy, logits_of((1, 5, 3, 3), dtype), labels_of((1, 8, 9)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_integer_labels(dtype):
    labels = labels_of((1, 40)).masked_fill(labels_of((1, 40)) == 255, 100).to(dtype)
    assert_float64(cross_entropy, logits_of((1, 5, 40)), labels, ignore_index=100)
    assert_float64(cross_entropy, logits_of((1, 5, 40)), labels.clamp(max=4), ignore_index=2**62 + 1)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64])
def test_labels_that_are_converted_first(dtype):
    labels = labels_of((1, 40)).masked_fill(labels_of((1, 40)) == 255, 100)
    found, expected = (
        cross_entropy(logits_of((1, 5, 40)), each, ignore_index=100) for each in (labels.to(dtype), labels)
    )
    assert torch.equal(found, expected)


def test_the_smallest_integer_is_not_void():
    labels = labels_of((1, 40)).clamp(max=4)
    labels[0, 3] = -(2**63)
    with pytest.raises(ValueError, match=f"label -{2**63}, .* ignore_index is None"):
        cross_entropy(logits_of((1, 5, 40)), labels, ignore_index=None)


def test_shapes_and_strides():
    channels_last = logits_of((2, 5, 6, 7)).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    gradient = assert_float64(cross_entropy, channels_last, labels_of((2, 6, 7)))
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    coarse = logits_of((2, 5, 2, 3)).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    gradient = assert_float64(upsampled_cross_entropy, coarse, labels_of((2, 5, 7)))
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    wide = logits_of((2, 5, 6, 14)).detach()[..., ::2].requires_grad_()
    assert_float64(cross_entropy, wide, labels_of((2, 7, 6)).transpose(1, 2))
    assert_float64(
        cross_entropy, logits_of((1, 5, 1, 3)).detach().expand(2, 5, 4, 3).requires_grad_(), labels_of((2, 4, 3))
    )
    assert_float64(cross_entropy, logits_of((9, 5)), labels_of((9,)), scope="batch")
    assert_float64(cross_entropy, logits_of((2, 5, 2, 3, 4)), labels_of((2, 2, 3, 4)))
    for empty in (logits_of((0, 5, 4)), logits_of((2, 5, 0))):
        loss = cross_entropy(empty, torch.zeros(empty.shape[0], *empty.shape[2:]).long())
        loss.backward()
        assert loss.item() == 0
        assert empty.grad.shape == empty.shape


def test_a_common_shift_of_the_logits_changes_nothing():
    logits = logits_of((1, 5, 60)).detach().mul(8).round().div(8)  # exact after the shift
    shifted = (logits + 20_000).requires_grad_()
    for options in ({}, {"label_smoothing": 0.1}):
        assert_float64(cross_entropy, shifted, labels_of((1, 60)), **options)


def test_uniform_weights_equal_torch():
    logits, labels = logits_of((2, 5, 40)), labels_of((2, 40))
    loss = cross_entropy(logits, labels, p=math.inf, scope="batch", ignore_index=255)
    plain = F.cross_entropy(logits, labels, ignore_index=255)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(each, logits)[0] for each in (loss, plain)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_void_pixels_may_hold_anything(bad):
    logits, labels = logits_of((1, 5, 40)), labels_of((1, 40))
    labels[0, :20] = 255
    with torch.no_grad():
        logits[0, 1:4, :20] = bad
    gradient = assert_float64(cross_entropy, logits, labels, label_smoothing=0.1, weight=WEIGHT)
    assert (gradient[0, :, :20] == 0).all()
    coarse, fine = logits_of((1, 5, 3, 3)), labels_of((1, 12, 12))
    fine[:, :6] = 255
    with torch.no_grad():
        coarse[0, :, 0, 1] = bad
    gradient = assert_float64(upsampled_cross_entropy, coarse, fine)
    assert gradient.isfinite().all()


def test_masked_classes():
    logits, labels = logits_of((1, 5, 40)), labels_of((1, 40))
    labels[labels == 2] = 3
    with torch.no_grad():
        logits[:, 2, ::3] = -math.inf
        logits[:, 0, ::4] = -math.inf  # sometimes the first class is masked as well
    labels[labels == 0] = 1
    gradient = assert_float64(cross_entropy, logits, labels)
    assert (gradient[:, 2, ::3] == 0).all()
    labels[0, 0] = 2
    loss = cross_entropy(logits, labels, ignore_index=255)
    assert loss.item() == math.inf
    assert not torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_masked_classes_of_upsampled(smoothing):
    """As ops/logits.py defines it: ruled out near a masked cell, unless all classes are."""
    logits, labels = logits_of((1, 5, 3, 3)), labels_of((1, 12, 12))
    labels[labels == 2] = 3
    with torch.no_grad():
        logits[0, 2, 1, 1] = -math.inf
    options = {"ignore_index": 255, "label_smoothing": smoothing}
    if smoothing:  # a ruled-out class has a share of the label
        assert upsampled_cross_entropy(logits, labels, **options).item() == math.inf
        return
    assert_float64(upsampled_cross_entropy, logits, labels)
    labels[0, 6, 6] = 2
    assert upsampled_cross_entropy(logits, labels, **options).item() == math.inf
    both = torch.tensor([[[[0.0, -math.inf]], [[-math.inf, 0.0]]]], requires_grad=True)
    loss = upsampled_cross_entropy(both, torch.tensor([[[0, 0, 0, 0, 1, 1, 1, 1]]]))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, both)[0].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_shows(bad):
    logits, labels = logits_of((1, 5, 40)), labels_of((1, 40))
    labels[0, 3] = 1
    with torch.no_grad():
        logits[0, 1, 3] = bad
    loss = cross_entropy(logits, labels, ignore_index=255)
    assert not math.isfinite(loss.item())
    assert not torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize("upsampled", [False, True])
def test_stats(upsampled):
    function = upsampled_cross_entropy if upsampled else cross_entropy
    logits, labels = logits_of((2, 5, 4, 5)), labels_of((2, 8, 10) if upsampled else (2, 4, 5))
    kernel, tensor = PoolingStats(), PoolingStats()
    if not upsampled:
        with torch.no_grad():
            logits[0, 3, 0, 1], labels[0, 0, 1] = math.nan, 255
    function(logits, labels, ignore_index=255, stats=kernel).backward()
    function(logits.detach().double(), labels, ignore_index=255, stats=tensor)
    assert torch.equal(kernel.prediction, tensor.prediction)
    assert torch.equal(kernel.valid, tensor.valid)
    assert torch.equal(kernel.saturated, tensor.saturated)
    torch.testing.assert_close(kernel.alpha, tensor.alpha, rtol=1e-5, atol=0)
    torch.testing.assert_close(kernel.tau, tensor.tau, rtol=1e-12, atol=0)
    torch.testing.assert_close(kernel.weights.double(), tensor.weights, rtol=0, atol=1e-5 * float(tensor.tau.max()))


def test_no_valid_pixel():
    for function, logits in (
        (cross_entropy, logits_of((2, 5, 4, 4))),
        (upsampled_cross_entropy, logits_of((2, 5, 2, 2))),
    ):
        loss = function(logits, torch.full((2, 4, 4), -100))
        loss.backward()
        assert loss.item() == 0
        assert (logits.grad == 0).all()
        labels = labels_of((2, 4, 4))
        labels[0] = 255
        assert_float64(function, logits, labels)


def test_repetition_is_exact():
    logits, labels = logits_of((1, 9, 2, 3)), labels_of((1, 7, 8), classes=9)
    for function, data in ((upsampled_cross_entropy, logits), (cross_entropy, logits_of((1, 9, 7, 8)))):
        first, second = (torch.autograd.grad(function(data, labels, ignore_index=255), data)[0] for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("function", [cross_entropy, upsampled_cross_entropy])
def test_bad_arguments_are_refused(function):
    logits, labels = logits_of((1, 5, 3, 3)), labels_of((1, 3, 3))
    labels[0, 1, 1] = 5
    with pytest.raises(InterpreterError, match="losspool: target has labels other than classes and ignore_index"):
        function(logits, labels, ignore_index=255)
    labels[0, 1, 1] = -1
    with pytest.raises(InterpreterError, match="losspool: target has labels"):
        function(logits, labels, ignore_index=255)
    labels[0] = 0
    for weight in (-1.0, math.inf, math.nan):
        with pytest.raises(InterpreterError, match="losspool: class weights must not be negative"):
            function(logits, labels, weight=torch.tensor([1.0, 1.0, 1.0, 1.0, weight]))
    logits, labels = logits_of((1, 5, 18, 18)), torch.full((1, 18, 18), -100)
    labels[0, -1] = 0  # a whole block of void pixels comes first
    with pytest.raises(InterpreterError, match="losspool: class weights must not be negative"):
        function(logits, labels, weight=torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]))


def test_a_negative_weight_is_refused_where_tensor_operations_compute_the_losses():
    """The losses of binary targets and of class probabilities; only the pooling has a kernel there."""
    logits = logits_of((1, 3, 4, 4))
    shares = logits.detach().softmax(1)
    for options in ({"weight": [-0.01]}, {"pos_weight": -0.01}, {"pos_weight": torch.tensor(-0.01)}):
        with pytest.raises(ValueError, match=r"must not be negative, got -0\.0"):
            binary_cross_entropy_with_logits(logits, shares, **options)
    with pytest.raises(ValueError, match=r"class weights must not be negative, got -0\.0"):
        cross_entropy(logits, shares, [1.0, 1.0, -0.01])


@pytest.mark.parametrize("function", [cross_entropy, upsampled_cross_entropy])
def test_the_second_derivative_is_refused(function):
    logits, labels = logits_of((1, 5, 3, 3)), labels_of((1, 3, 3))
    (gradient,) = torch.autograd.grad(function(logits, labels, ignore_index=255), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="losspool has no second derivative"):
        gradient.sum().backward()
