"""Half precision, autocast, and losses that are not finite."""

import math

import pytest
import torch
import torch.nn.functional as F

from losspool import cross_entropy, max_pool, pooling_weights, reference

HALVES = [torch.float16, torch.bfloat16]


def batch(dtype, scale=4.0):
    g = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(2, 19, 40, 40, generator=g)).to(dtype).requires_grad_()
    return logits, torch.randint(0, 19, (2, 40, 40), generator=g)


def truth(logits, labels, p=1.3, m=0.25):
    """The loss and its gradient in float64, from the same logits."""
    exact = logits.detach().double().requires_grad_()
    loss = cross_entropy(exact, labels, p=p, m=m)
    loss.backward()
    return loss.item(), exact.grad


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_errs_no_more_than_plain_cross_entropy_does(dtype, autocast):
    logits, labels = batch(dtype)
    value, gradient = truth(logits, labels)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        loss = cross_entropy(logits, labels)
        naive = F.cross_entropy(logits, labels)
    assert loss.dtype == torch.float32
    loss.backward()
    assert logits.grad.dtype == dtype
    exact = logits.detach().double().requires_grad_()
    plain = F.cross_entropy(exact, labels)
    # Under autocast plain cross-entropy is float32 too: then two correctly rounded values compare.
    allowed = max(abs(naive.item() - plain.item()) / plain.item(), 1e-6)
    assert abs(loss.item() - value) / value <= allowed
    plain.backward()
    half = logits.detach().clone().requires_grad_()
    F.cross_entropy(half, labels).backward()
    naive_error = (half.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert (logits.grad.double() - gradient).norm() / gradient.norm() <= naive_error * 1.05


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_finite_at_extreme_logits(dtype):
    logits = torch.tensor([6e4, -6e4, 0.0, 1.0]).repeat(3, 1).T.reshape(1, 4, 3).to(dtype).requires_grad_()
    loss = cross_entropy(logits, torch.tensor([[0, 1, 2]]), m=1)
    loss.backward()
    assert math.isfinite(loss.item())
    assert logits.grad.isfinite().all()
    assert loss.item() == pytest.approx(reference.pool(torch.tensor([0, 1.2e5, 6e4]), p=1.3, m=1).value, rel=1e-2)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_losses_are_pooled_in_float32(dtype):
    losses = torch.rand(2, 50).to(dtype).requires_grad_()
    pooled = max_pool(losses)
    assert pooled.dtype == torch.float32
    assert pooled.item() == pytest.approx(max_pool(losses.detach().double()).item(), rel=1e-6)
    pooled.backward()
    assert losses.grad.dtype == dtype
    assert pooling_weights(losses).dtype == torch.float32


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("p", [1, 1.3, math.inf])
@pytest.mark.parametrize("m", [1, 0.25, 1.0])
def test_a_loss_that_is_not_finite_never_yields_a_finite_result(bad, p, m):
    losses = torch.rand(3, 40)
    losses[1, 7] = bad
    losses.requires_grad_()
    for scope in ("image", "batch"):
        loss = max_pool(losses, p=p, m=m, scope=scope)
        assert not math.isfinite(loss.item())
        (gradient,) = torch.autograd.grad(loss, losses)
        assert not gradient.isfinite().all(), "an optimiser that looks for such gradients must see it"


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_bad_logit_in_a_valid_pixel_shows(bad):
    logits, labels = batch(torch.float32)
    with torch.no_grad():
        logits[0, 3, 5, 5] = bad
    labels[0, 5, 5] = 3
    loss = cross_entropy(logits, labels)
    assert not math.isfinite(loss.item())
    loss.backward()
    assert not logits.grad.isfinite().all()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e38])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("scope", ["image", "batch"])
def test_under_void_anything_goes(bad, smoothing, scope):
    logits, labels = batch(torch.float32)
    labels[0, 5, :] = 255
    options = {"ignore_index": 255, "label_smoothing": smoothing, "scope": scope}
    loss = cross_entropy(logits, labels, **options)
    loss.backward()
    expected = logits.grad.clone()
    assert (expected[0, :, 5] == 0).all()
    rotten = logits.detach().clone()
    rotten[0, :, 5, :] = bad
    rotten.requires_grad_()
    again = cross_entropy(rotten, labels, **options)
    again.backward()
    assert again.item() == loss.item()
    assert torch.equal(rotten.grad, expected)


def test_masked_losses_may_hold_anything():
    losses, mask = torch.rand(2, 30), torch.rand(2, 30) < 0.7
    expected = max_pool(torch.where(mask, losses, 0.0), mask=mask)
    rotten = torch.where(mask, losses, torch.tensor([math.nan, -5.0]).repeat(15)).requires_grad_()
    loss = max_pool(rotten, mask=mask)
    loss.backward()
    assert loss.item() == expected.item()
    assert (rotten.grad[~mask] == 0).all()


def test_a_masked_class_is_fine():
    """A logit of -inf for a class that is not the label: the class is ruled out."""
    logits, labels = batch(torch.float32)
    with torch.no_grad():
        logits[:, 7] = -math.inf
    labels[labels == 7] = 8
    loss = cross_entropy(logits, labels)
    loss.backward()
    assert math.isfinite(loss.item())
    assert (logits.grad[:, 7] == 0).all()
    kept = [c for c in range(19) if c != 7]
    fewer = cross_entropy(logits[:, kept], labels - (labels > 7).long())
    assert loss.item() == pytest.approx(fewer.item(), rel=1e-6)
