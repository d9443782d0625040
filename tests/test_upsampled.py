"""upsampled_cross_entropy equals F.interpolate followed by cross_entropy, without full-size logits."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import tolerances
from losspool import PoolingStats, UpsampledCrossEntropyLoss, cross_entropy, upsampled_cross_entropy
from losspool.ops import logits as blocks
from losspool.solver import host

SIZES = [
    ((3, 4), (24, 32)),
    ((9, 7), (67, 51)),
    ((5, 5), (5, 5)),
    ((1, 1), (9, 11)),
    ((2, 6), (3, 48)),
    ((4, 1), (33, 8)),
]


def batch(coarse, fine, images=2, classes=5, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(images, classes, *coarse, generator=g, dtype=dtype)).requires_grad_()
    labels = torch.randint(0, classes, (images, *fine), generator=g)
    labels[torch.rand(labels.shape, generator=g) < 0.1] = 255
    return logits, labels


def unfused(logits, labels, align_corners=False, **options):
    enlarged = F.interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=align_corners)
    return cross_entropy(enlarged, labels, **options)


def assert_same(logits, labels, align_corners=False, **options):
    fused = upsampled_cross_entropy(logits, labels, align_corners=align_corners, **options)
    plain = unfused(logits, labels, align_corners, **options)
    assert fused.item() == pytest.approx(plain.item(), rel=1e-6)
    (got,), (expected,) = torch.autograd.grad(fused, logits), torch.autograd.grad(plain, logits)
    atol = tolerances.GRADIENT * float(expected.abs().max())
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.fixture(params=["one strip", "many strips", "accelerator"])
def strips(request, monkeypatch):
    if request.param == "many strips":
        monkeypatch.setattr(blocks, "_CPU_BLOCK", 300)
    if request.param == "accelerator":
        monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
        monkeypatch.setattr(blocks, "_ACCELERATOR_BLOCK", 700)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("coarse", "fine"), SIZES)
def test_fused_equals_unfused(coarse, fine, align_corners, strips):
    logits, labels = batch(coarse, fine)
    for p in (1.3, math.inf):
        assert_same(logits, labels, align_corners, ignore_index=255, p=p, m=0.3)


@pytest.mark.parametrize(
    "options",
    [
        {"scope": "batch"},
        {"scope": "global", "m": 40},
        {"label_smoothing": 0.1},
        {"weight": torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])},
        {"weight": torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0]), "label_smoothing": 0.2, "p": 2.0},
    ],
)
def test_every_option(options, strips):
    assert_same(*batch((9, 7), (67, 51)), ignore_index=255, **options)


@pytest.mark.parametrize("align_corners", [False, True])
def test_gradcheck(align_corners, strips):
    logits, labels = batch((3, 2), (13, 9), dtype=torch.float64, classes=3)
    assert torch.autograd.gradcheck(
        lambda x: upsampled_cross_entropy(x, labels, ignore_index=255, align_corners=align_corners), logits
    )


def test_low_precision_logits_give_a_float32_loss():
    logits, labels = batch((9, 7), (67, 51))
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.detach().to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = upsampled_cross_entropy(half, labels, ignore_index=255)
            loss.backward()
        assert loss.dtype == torch.float32
        assert half.grad.dtype == dtype
        exact = half.detach().double().requires_grad_()
        truth = unfused(exact, labels, ignore_index=255)
        truth.backward()
        assert loss.item() == pytest.approx(truth.item(), rel=1e-6)
        error = (half.grad.double() - exact.grad).norm() / exact.grad.norm()
        assert error <= torch.finfo(dtype).eps


class PeakStorage(TorchDispatchMode):
    """Notes the largest tensor that any operator makes."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def test_no_full_size_logits_are_ever_made(monkeypatch):
    monkeypatch.setattr(blocks, "_CPU_BLOCK", 1 << 16)
    logits, labels = batch((33, 33), (257, 260), images=1, classes=60)
    full = 60 * 257 * 260 * 4
    with PeakStorage() as spy:
        upsampled_cross_entropy(logits, labels, ignore_index=255).backward()
    assert spy.largest <= full / 20, "two blocks, and a tensor per pixel, are all that is needed"
    with PeakStorage() as spy:
        unfused(logits, labels, ignore_index=255).backward()
    assert spy.largest >= full, "else the spy sees nothing"


def test_edge_cases():
    logits, labels = batch((4, 4), (32, 32))
    void = upsampled_cross_entropy(logits, torch.full_like(labels, 255), ignore_index=255)
    void.backward()
    assert void.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    empty = torch.zeros(0, 5, 4, 4, requires_grad=True)
    upsampled_cross_entropy(empty, torch.zeros(0, 32, 32).long()).backward()
    assert empty.grad.shape == empty.shape
    one_void = labels.clone()
    one_void[0] = 255
    only = upsampled_cross_entropy(logits[1:], labels[1:], ignore_index=255)
    assert upsampled_cross_entropy(logits, one_void, ignore_index=255).item() == pytest.approx(only.item(), rel=1e-6)


def test_not_finite_logits():
    logits, labels = batch((4, 4), (32, 32))
    with torch.no_grad():
        logits[0, 2, 1, 1] = math.nan
    assert not math.isfinite(upsampled_cross_entropy(logits, labels, ignore_index=255).item())
    labels[0] = 255  # then all that the logit reaches is void
    loss = upsampled_cross_entropy(logits, labels, ignore_index=255)
    loss.backward()
    assert math.isfinite(loss.item())
    assert (logits.grad[0] == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("align_corners", [False, True])
def test_what_is_not_finite_stays_under_void(bad, align_corners, strips):
    """Only the rows next to a coarse pixel depend on it; if they are void, it changes nothing."""
    logits, labels = batch((8, 8), (64, 64))
    labels[0, :24] = 255
    options = {"ignore_index": 255, "align_corners": align_corners}
    loss = upsampled_cross_entropy(logits, labels, **options)
    (expected,) = torch.autograd.grad(loss, logits)
    rotten = logits.detach().clone()
    rotten[0, :, 0, 3] = bad
    rotten.requires_grad_()
    again = upsampled_cross_entropy(rotten, labels, **options)
    (got,) = torch.autograd.grad(again, rotten)
    assert again.item() == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-8)


def test_a_masked_class_is_fine(strips):
    logits, labels = batch((8, 8), (64, 64))
    labels[labels == 2] = 3
    kept = cross_entropy_of_fewer(logits, labels)
    with torch.no_grad():
        logits[:, 2] = -math.inf
    loss = upsampled_cross_entropy(logits, labels, ignore_index=255)
    loss.backward()
    assert loss.item() == pytest.approx(kept, rel=1e-6)
    assert (logits.grad[:, 2] == 0).all()
    assert logits.grad.isfinite().all()


def test_the_label_of_a_masked_class_is_infinite(strips):
    """As from full-size logits, so that a guard sees it; also between cells of which one alone is masked."""
    logits, labels = batch((8, 8), (64, 64))
    labels[labels == 2] = 3
    with torch.no_grad():
        logits[0, 2, 4, 4] = -math.inf
    assert math.isfinite(upsampled_cross_entropy(logits, labels, ignore_index=255).item())
    for place, infinite in (((36, 36), True), ((31, 36), True), ((27, 36), False)):
        changed = labels.clone()
        changed[0][place] = 2
        loss = upsampled_cross_entropy(logits, changed, ignore_index=255)
        assert math.isinf(loss.item()) == infinite
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient.isfinite().all() != infinite


def test_cells_that_rule_out_every_class_together():
    logits = torch.tensor([[[[0.0, -math.inf]], [[-math.inf, 0.0]]]], requires_grad=True)
    loss = upsampled_cross_entropy(logits, torch.tensor([[[0, 0, 0, 0, 1, 1, 1, 1]]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert gradient.isfinite().all()


def cross_entropy_of_fewer(logits, labels):
    moved = torch.where((labels > 2) & (labels < 255), labels - 1, labels)
    return unfused(logits[:, [0, 1, 3, 4]], moved, ignore_index=255).item()


def test_prediction_and_stats():
    logits, labels = batch((9, 7), (67, 51))
    stats, plain = PoolingStats(), PoolingStats()
    UpsampledCrossEntropyLoss(ignore_index=255)(logits, labels, stats=stats)
    unfused(logits, labels, ignore_index=255, stats=plain)
    assert (stats.prediction == plain.prediction).float().mean() > 0.999, "up to rounding at the borders"
    assert stats.weights.shape == labels.shape
    torch.testing.assert_close(stats.alpha, plain.alpha, rtol=1e-5, atol=0)
    assert torch.equal(stats.valid, plain.valid)


def test_second_derivative_is_refused():
    logits, labels = batch((4, 4), (32, 32))
    (gradient,) = torch.autograd.grad(
        upsampled_cross_entropy(logits, labels, ignore_index=255), logits, create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("coarse", "fine", "message"),
    [
        ((2, 5, 4), (2, 32, 32), r"\(B, C, h, w\) and target \(B, H, W\), got \(2, 5, 4\)"),
        ((2, 5, 4, 4), (1, 32, 32), "got .* and .*1, 32, 32"),
        ((2, 5, 40, 4), (2, 32, 32), "only be upsampled: .* is 40 high, .* is 32"),
        ((2, 5, 4, 40), (2, 32, 32), "is 40 wide"),
        ((2, 5, 0, 4), (2, 32, 32), "is 0 high"),
    ],
)
def test_bad_shapes(coarse, fine, message):
    with pytest.raises(ValueError, match=message):
        upsampled_cross_entropy(torch.zeros(coarse), torch.zeros(fine).long())


def test_bad_align_corners():
    with pytest.raises(TypeError, match="align_corners must be a bool, got 1"):
        upsampled_cross_entropy(*batch((4, 4), (8, 8)), align_corners=1)
