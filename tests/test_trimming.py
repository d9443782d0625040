"""trim: to trim and then pool is to pool the rest, on every path."""

import math

import pytest
import torch
import torch.nn.functional as F

import problems
from losspool import PoolingStats, cross_entropy, max_pool, pooling_weights, solver, upsampled_cross_entropy
from losspool.solver import host

SHARES = (0.001, 0.05, 0.3, 0.99)


def rest(losses, valid, share):
    """Plain Python: where a pool's losses are kept."""
    kept = torch.zeros_like(valid)
    for row, (values, counts) in enumerate(zip(losses.tolist(), valid.tolist(), strict=True)):
        ranked = sorted((value for value, counted in zip(values, counts, strict=True) if counted), reverse=True)
        if ranked:
            threshold = ranked[math.floor(share * len(ranked))]
            kept[row] = torch.tensor([c and v <= threshold for v, c in zip(values, counts, strict=True)])
    return kept


@pytest.fixture(params=["cpu", "accelerator"])
def path(request, monkeypatch):
    if request.param == "accelerator":
        monkeypatch.setattr(host, "host_may_look", lambda tensor: False)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("n", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("share", SHARES)
def test_pooling_after_trimming_is_pooling_the_rest(n, share):
    losses = torch.stack(list(problems.losses(n).values()))
    mask = torch.rand(losses.shape, generator=torch.Generator().manual_seed(0)) < 0.9
    kept, stats, alone = rest(losses, mask, share), PoolingStats(), PoolingStats()
    losses.requires_grad_()
    trimmed = max_pool(losses, mask=mask, trim=share, reduction="pool", stats=stats)
    expected = max_pool(losses, mask=kept, reduction="pool", stats=alone)
    assert torch.equal(trimmed, expected)
    assert torch.equal(stats.weights, alone.weights)
    assert torch.equal(stats.valid, alone.valid)
    assert torch.equal(stats.trimmed, (mask & ~kept).sum(1))
    assert (alone.trimmed == 0).all()
    (gradient,) = torch.autograd.grad(trimmed.sum(), losses)
    assert (gradient[~kept] == 0).all()
    assert torch.equal(pooling_weights(losses, mask=mask, trim=share), stats.weights)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("percent", [7, 14, 28, 29, 55, 56, 57, 58, 99])
def test_a_percentage_is_that_of_a_hundred(percent):
    """0.29·100 is 28.999999999999996."""
    stats = PoolingStats()
    max_pool(torch.arange(100.0).view(1, -1), trim=f"{percent}%", stats=stats)
    assert stats.trimmed.tolist() == [percent]


@pytest.mark.usefixtures("path")
def test_equal_losses_stay_together():
    losses = torch.tensor([[1.0, 5, 5, 5, 2, 3, 4, 9, 8, 0]])
    for share, kept in {0.0: 10, 0.1: 9, 0.2: 8, 0.3: 8, 0.4: 8, 0.49: 8, 0.5: 5, 0.9: 1}.items():
        stats = PoolingStats()
        max_pool(losses, trim=share, stats=stats)
        assert (stats.valid.item(), stats.trimmed.item()) == (kept, 10 - kept), share
    assert max_pool(torch.ones(1, 50), trim=0.9).item() == pytest.approx(1.0)
    assert torch.equal(max_pool(losses, trim="30%"), max_pool(losses, trim=0.3))


def batch(dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(2, 5, 20, 18, generator=g)).to(dtype).requires_grad_()
    labels = torch.randint(0, 5, (2, 20, 18), generator=g)
    labels[0, :3] = 255
    return logits, labels


OPTIONS = [
    {},
    {"weight": [0.5, 2.0, 0.0, 1.0, 3.0], "scope": "batch"},
    {"label_smoothing": 0.2, "p": 1.0, "m": 30},
]


def without_the_hardest(logits, labels, share, weight=None, label_smoothing=0.0, scope="image", **_):
    """Labels in which the trimmed pixels are void, by the losses of torch."""
    weight = None if weight is None else torch.tensor(weight, dtype=logits.dtype)
    options = {"weight": weight, "label_smoothing": label_smoothing, "ignore_index": 255, "reduction": "none"}
    losses, valid = F.cross_entropy(logits.detach(), labels, **options), labels != 255
    shape = (1, -1) if scope == "batch" else (len(labels), -1)
    return labels.masked_fill(~rest(losses.reshape(shape), valid.reshape(shape), share).view(labels.shape), 255)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("coarse", [False, True])
def test_cross_entropy(options, coarse):
    """In float64, where torch's losses and ours agree on which are the largest."""
    logits, labels = batch(torch.float64)
    full, function = logits, cross_entropy
    if coarse:
        logits = logits.detach()[..., :5, :6].clone().requires_grad_()
        full, function = F.interpolate(logits, (20, 18), mode="bilinear"), upsampled_cross_entropy
    kept, stats = without_the_hardest(full, labels, 0.1, **options), PoolingStats()
    trimmed = function(logits, labels, ignore_index=255, trim=0.1, stats=stats, **options)
    expected = function(logits, kept, ignore_index=255, **options)
    assert trimmed.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (trimmed, expected)))
    assert stats.trimmed.sum() == ((labels != 255) & (kept == 255)).sum() > 0
    assert trimmed < function(logits, labels, ignore_index=255, **options)


def test_compiled():
    logits, labels = batch()

    def loss(x):
        return cross_entropy(x, labels, ignore_index=255, trim=0.1, reduction="pool")

    got, expected = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits), loss(logits)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)
    gradients = [torch.autograd.grad(values[1] - 2 * values[0], logits)[0] for values in (got, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-5 * float(gradients[1].abs().max()))


def test_an_infinite_loss_is_trimmed_and_a_nan_is_not():
    losses = torch.rand(1, 20)
    losses[0, 3] = torch.inf
    assert max_pool(losses).isinf()
    assert max_pool(losses, trim=0.05).isfinite()
    losses[0, 4] = torch.inf
    assert max_pool(losses, trim=0.05).isinf(), "equal losses stay together"
    losses[0, 3] = torch.nan
    assert max_pool(losses, trim=0.5).isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", SHARES)
def test_processes_find_the_same_threshold_as_one(dtype, share):
    """A rank by itself exchanges with ranks that are simulated: the losses of all are one pool."""
    whole = torch.stack(list(problems.losses(300).values())).to(dtype)
    whole[:, ::7] = -1.0  # void
    parts = [whole[:, :0], whole[:, :120], whole[:, 120:]]
    expected = solver.trimmed(whole, share)
    assert expected.any() or share < 1 / 300
    found = torch.cat(
        in_lockstep([lambda exchange, part=part: solver.trimmed(part, share, exchange) for part in parts]), 1
    )
    assert torch.equal(found, expected)


def in_lockstep(works):
    """Run each rank's work again and again, until what it sends is known for all exchanges."""
    sent: list[list[torch.Tensor]] = [[] for _ in works]
    while True:
        results = [attempt(work, rank, sent) for rank, work in enumerate(works)]
        if all(result is not None for result in results):
            return results


def attempt(work, rank, sent):
    exchanges = iter(range(1000))
    rounds = min(len(each) for each in sent)

    def swap(counts, sums):
        exchange = next(exchanges)
        if exchange >= rounds:
            if exchange >= len(sent[rank]):
                sent[rank].append(counts)
            raise InterruptedError
        return sum(each[exchange] for each in sent), sums[None]

    try:
        return work(swap)
    except InterruptedError:
        return None


def test_nothing_is_looked_up_without_trim(monkeypatch):
    monkeypatch.setattr(solver, "trimmed", lambda *_: pytest.fail("free at 0"))
    max_pool(torch.rand(2, 9))
    with pytest.raises(pytest.fail.Exception):
        max_pool(torch.rand(2, 9), trim=0.1)
