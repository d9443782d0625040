"""What other implementations of this loss, and of losses like it, got wrong."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import problems
import tolerances
from losspool import (
    PoolingStats,
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    pooling_weights,
    reference,
    upsampled_cross_entropy,
)
from losspool.solver import host


def close_to_reference(losses, p, m):
    truth = reference.pool(losses, p=p, m=m)
    weights = pooling_weights(losses.unsqueeze(0), p=p, m=m)[0].double()
    assert max_pool(losses.unsqueeze(0), p=p, m=m).item() == pytest.approx(truth.value, rel=1e-6, abs=1e-45)
    assert (weights - truth.weights).abs().max() <= tolerances.weight(p) * truth.tau


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.99, 1.0])
def test_exact_zeros_do_not_end_the_walk_early(share):
    """A loop bound that counts non-zero losses gave the hardest pixels weight 0."""
    losses = torch.where(torch.arange(1000) < share * 1000, 0.0, torch.rand(1000) + 0.01)
    close_to_reference(losses, 1.3, 250)


@pytest.mark.parametrize("n", range(1, 51))
def test_no_off_by_one_in_the_count(n):
    for m in {1, max(n // 4, 1), max(n // 2, 1), n}:
        close_to_reference(torch.rand(n, generator=torch.Generator().manual_seed(n)), 1.3, m)


def test_no_weight_exceeds_tau_on_two_clusters():
    """The pixel that ended the walk once got a weight of 4e8·τ."""
    losses = torch.cat([torch.full((50,), 1e-6), torch.full((50,), 1e1)])
    for m in (1, 25, 49, 50, 51, 75):
        close_to_reference(losses, 1.3, m)
        tau = 100 ** (1 / 1.3 - 1) * m ** (-1 / 1.3)
        assert pooling_weights(losses.unsqueeze(0), p=1.3, m=m).max() <= tau * (1 + 1e-6)


def test_n_counts_valid_pixels_not_positive_ones():
    """τ must not drift as the network improves."""
    losses = torch.cat([torch.zeros(500), torch.rand(500) + 1])
    weights = pooling_weights(losses.unsqueeze(0), p=1.3, m=0.25)
    assert weights.max().item() == pytest.approx(1000 ** (1 / 1.3 - 1) * 250 ** (-1 / 1.3), rel=1e-6)


@pytest.mark.parametrize("p", [1, 1.3, 2, math.inf])
def test_all_zero_losses(p):
    losses = torch.zeros(2, 30, requires_grad=True)
    loss = max_pool(losses, p=p, m=7)
    loss.backward()
    assert loss.item() == 0
    assert (losses.grad == 0).all() or p == math.inf
    logits = torch.zeros(1, 2, 5)
    logits[:, 0] = 200.0
    logits.requires_grad_()
    cross_entropy(logits, torch.zeros(1, 5, dtype=torch.long), p=p, m=2).backward()
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("p", [1, 1.3, 2, math.inf])
def test_ratio_of_one_is_the_plain_mean(p):
    losses = torch.rand(1, 40)
    assert max_pool(losses, p=p, m=1.0).item() == pytest.approx(losses.mean().item(), rel=1e-6)


@pytest.mark.parametrize("p", [1.001, 1.01, 1.1, 2.0, 1000.0])
def test_losses_that_span_fifteen_orders_of_magnitude(p):
    """Dividing by the largest loss underflows here; α became 0, or the value 187 times too large."""
    for m in (1, 100, 2500, 9000):
        close_to_reference(problems.losses(10_000)["wide range"], p, m)
        close_to_reference(problems.losses(10_000)["log-normal 3"], p, m)


@pytest.mark.parametrize("scope", ["image", "batch", "global"])
def test_adding_void_pixels_changes_nothing(scope):
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 4, 6, 6, generator=g), torch.randint(0, 4, (2, 6, 6), generator=g)
    padded, void = F.pad(logits, (0, 9, 3, 0), value=7.0), F.pad(labels, (0, 9, 3, 0), value=255)
    alone = cross_entropy(logits, labels, ignore_index=255, scope=scope)
    assert cross_entropy(padded, void, ignore_index=255, scope=scope).item() == pytest.approx(alone.item(), rel=1e-6)


@pytest.mark.parametrize("scope", ["image", "batch", "global"])
def test_an_all_void_batch_is_zero_and_on_the_graph(scope):
    logits = torch.randn(2, 4, 6, 6, requires_grad=True)
    loss = cross_entropy(logits, torch.full((2, 6, 6), 255), ignore_index=255, scope=scope)
    assert loss.item() == 0
    assert loss.grad_fn is not None
    loss.backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_an_all_void_image_does_not_count_in_the_average():
    logits, labels = torch.randn(3, 4, 6, 6), torch.randint(0, 4, (3, 6, 6))
    labels[1] = 255
    kept = cross_entropy(logits[[0, 2]], labels[[0, 2]], ignore_index=255)
    assert cross_entropy(logits, labels, ignore_index=255).item() == pytest.approx(kept.item(), rel=1e-6)


class NoLooking(TorchDispatchMode):
    """Fails at the operators by which the host reads a tensor's values, and so waits for the device."""

    READS = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.masked_select", "aten.is_nonzero")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert not str(function).startswith(self.READS), f"{function} makes the host wait"
        return function(*args, **(kwargs or {}))


def test_no_host_synchronisation_on_the_accelerator_path(monkeypatch):
    logits, labels = torch.randn(2, 4, 6, 6, requires_grad=True), torch.randint(0, 4, (2, 6, 6))
    labels[0, :3] = 255
    with NoLooking(), pytest.raises(AssertionError, match="wait"):  # the CPU's path does look
        cross_entropy(logits, labels, ignore_index=255)
    big = labels.repeat_interleave(4, 1).repeat_interleave(4, 2)
    calls = [
        lambda: cross_entropy(logits, labels, ignore_index=255, stats=PoolingStats()),
        lambda: upsampled_cross_entropy(logits, big, ignore_index=255, stats=PoolingStats()),
        lambda: max_pool(logits.exp(), mask=logits > 0, scope="batch"),
        lambda: cross_entropy(logits, labels, ignore_index=255, trim=0.1, stats=PoolingStats()),
        lambda: cross_entropy(logits, logits.detach().softmax(1)),
        lambda: binary_cross_entropy_with_logits(logits, labels.unsqueeze(1).expand(-1, 4, -1, -1) == 1),
    ]
    expected = [call().item() for call in calls]
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    for call, value in zip(calls, expected, strict=True):
        with NoLooking():
            loss = call()
            loss.backward()
        assert loss.item() == pytest.approx(value, rel=1e-6)


def test_labels_out_of_range_name_the_label_and_the_class_count():
    logits, labels = torch.randn(1, 4, 6), torch.tensor([[0, 1, 2, 9, 3, 3]])
    with pytest.raises(ValueError, match=r"label 9, but there are 4 classes"):
        cross_entropy(logits, labels)
    labels[0, 3] = 255
    with pytest.raises(ValueError, match=r"did you mean ignore_index=255\?"):
        cross_entropy(logits, labels)
