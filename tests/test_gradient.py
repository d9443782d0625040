"""The gradient is w*·∂ℓ, everywhere, and only once."""

import pytest
import torch
import torch.nn.functional as F

import tolerances
from losspool import PoolingStats, cross_entropy, max_pool, pooling_weights

OPTIONS = [
    {},
    {"p": 1, "m": 7},
    {"p": 3.0, "m": 0.5, "scope": "batch"},
    {"label_smoothing": 0.2},
    {"weight": torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])},
    {"weight": torch.tensor([0.5, 2.0, 1.0, 1.0, 3.0]), "label_smoothing": 0.1, "p": 1.1},
]


def batch(dtype=torch.float64, shape=(2, 5, 6, 7), seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=g, dtype=dtype).requires_grad_()
    labels = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=g)
    labels[torch.rand(labels.shape, generator=g) < 0.2] = 255
    return logits, labels


@pytest.mark.parametrize("options", OPTIONS)
def test_gradcheck_from_logits(options):
    logits, labels = batch(shape=(2, 5, 3, 4))
    options = {k: v.double() if k == "weight" else v for k, v in options.items()}
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, labels, ignore_index=255, **options), logits)


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 1000.0])
def test_gradcheck_from_losses(p):
    losses = (torch.rand(2, 9, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: max_pool(x, p=p, m=0.4), losses)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", [(2, 5, 6, 7), (3, 5, 11), (1, 5, 2, 3, 4), (2, 5, 300, 310)])
def test_equals_the_weights_times_the_gradient_of_plain_cross_entropy(options, shape):
    logits, labels = batch(torch.float32, shape)
    stats = PoolingStats()
    loss = cross_entropy(logits, labels, ignore_index=255, stats=stats, **options)
    (got,) = torch.autograd.grad(3.0 * loss, logits)
    plain = F.cross_entropy(
        logits,
        labels,
        ignore_index=255,
        reduction="none",
        weight=options.get("weight"),
        label_smoothing=options.get("label_smoothing", 0.0),
    )
    images = 1 if options.get("scope") == "batch" else shape[0]
    (expected,) = torch.autograd.grad(3.0 * (stats.weights * plain).sum() / images, logits)
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerances.GRADIENT * float(expected.abs().max()))
    plain = plain.detach()
    assert loss.item() == pytest.approx(float((stats.weights * plain).sum()) / images, rel=1e-5)
    pool = {k: v for k, v in options.items() if k in ("p", "m", "scope")}
    weights = pooling_weights(plain, mask=labels != 255, **pool)
    torch.testing.assert_close(weights, stats.weights, rtol=0, atol=1e-5 * float(stats.tau.max()))


def test_ties_share_the_gradient():
    losses = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]], requires_grad=True)
    max_pool(losses, p=1, m=2).backward()
    assert losses.grad[0].tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6, 0])


def test_memory_layout_of_the_logits_does_not_matter():
    logits, labels = batch(torch.float32, (2, 5, 40, 41))
    (expected,) = torch.autograd.grad(cross_entropy(logits, labels, ignore_index=255), logits)
    last = logits.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    wide = torch.randn(2, 5, 40, 82)
    wide[..., ::2] = logits.detach()
    strided = wide[..., ::2].requires_grad_()
    for other in (last, strided):
        (got,) = torch.autograd.grad(cross_entropy(other, labels, ignore_index=255), other)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("ask", ["backward", "grad"])
@pytest.mark.parametrize("loss", [lambda x: max_pool(x.exp()), lambda x: cross_entropy(x, torch.zeros(2, 4).long())])
def test_a_second_derivative_is_refused_in_a_sentence(loss, ask):
    x = torch.rand(2, 3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward() if ask == "backward" else torch.autograd.grad(gradient.sum(), x)


def test_backward_twice_with_a_retained_graph():
    logits, labels = batch()
    loss = cross_entropy(logits, labels, ignore_index=255)
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, second)


def test_stats_are_detached_and_describe_the_solution():
    logits, labels = batch(torch.float32)
    labels[1] = 255
    stats = PoolingStats()
    cross_entropy(logits, labels, m=0.25, ignore_index=255, stats=stats)
    assert stats.weights.shape == labels.shape
    assert not stats.weights.requires_grad
    assert torch.equal(stats.prediction, logits.argmax(1))
    n = int((labels[0] != 255).sum())
    assert stats.valid.tolist() == [n, 0]
    assert stats.tau[0].item() == pytest.approx(n ** (1 / 1.3 - 1) * (n / 4) ** (-1 / 1.3))
    losses = F.cross_entropy(logits, labels, reduction="none", ignore_index=255)
    assert stats.saturated.tolist() == [int((losses[0] > stats.alpha[0]).sum()), 0]
    assert stats.alpha[1] == stats.tau[1] == 0
