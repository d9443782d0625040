"""Launches by name, forward and backward; bytes counted from the sizes of tensors; no look at a value."""

import pytest
import torch
import torch.nn.functional as F

import losspool
from kernel_ledger import ledger

SOLVER = ["new_zeros", *["count_pass"] * 4, "finish", "average"]


def labels(*shape):
    return torch.randint(0, 19, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("options", [{}, {"weight": torch.rand(19), "label_smoothing": 0.1, "scope": "batch"}])
def test_cross_entropy(options):
    logits, target = torch.randn(2, 19, 4, 4, requires_grad=True), labels(2, 4, 4)
    with ledger() as counted:
        losspool.cross_entropy(logits, target, **options).backward()
    assert counted.names == ["cross_entropy_forward", *SOLVER, "ones_like", "cross_entropy_backward"]
    assert len(counted.names) <= 12


def test_upsampled():
    logits, target = torch.randn(2, 19, 2, 2, requires_grad=True), labels(2, 6, 6).to(torch.uint8)
    with ledger() as counted:
        losspool.upsampled_cross_entropy(logits, target).backward()
    assert counted.names == ["upsampled_forward", *SOLVER, "ones_like", "upsampled_backward", "merge_corners"]
    assert len(counted.names) <= 14


def test_max_pool():
    losses = torch.rand(2, 40, requires_grad=True)
    mask = losses > 0.1
    with ledger() as counted:
        losspool.max_pool(losses, mask=mask).backward()
    assert counted.names == [*SOLVER, "ones_like", "weigh"]
    assert len(counted.names) <= 9


def test_many_classes():
    logits, target = torch.randn(9, 600, requires_grad=True), labels(9)
    with ledger() as counted:
        losspool.cross_entropy(logits, target, scope="batch").backward()
    assert {*SOLVER, "weigh", "nll_loss2d_forward"} < set(counted.names)
    assert len(counted.names) == 18


def test_stats_add_the_weights_alone():
    logits, stats = torch.randn(2, 19, 4, 4), losspool.PoolingStats()
    with ledger() as counted:
        losspool.cross_entropy(logits, labels(2, 4, 4), stats=stats)
    kernels = [name for name in counted.names if name in ("weigh", "count_pass", "cross_entropy_forward")]
    assert kernels == ["cross_entropy_forward", *["count_pass"] * 4, "weigh"]


def test_the_host_never_looks():
    """None of these reads a value back; a ledger that ran one would show it."""
    logits = torch.randn(2, 19, 2, 2, requires_grad=True)
    with ledger() as counted:
        losspool.cross_entropy(logits, labels(2, 2, 2)).backward()
        losspool.upsampled_cross_entropy(logits, labels(2, 4, 4)).backward()
        losspool.max_pool(torch.rand(2, 9, requires_grad=True)).backward()
    assert not {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "_to_copy", "equal"} & set(counted.names)
    with ledger() as counted:
        float(torch.ones(1))
    assert counted.names == ["ones", "_local_scalar_dense"], "else the ledger sees nothing"


def test_counted_bytes_of_cross_entropy():
    logits, target = torch.randn(2, 19, 550, 550, requires_grad=True), labels(2, 550, 550)
    with ledger() as plain:
        torch.autograd.grad(F.cross_entropy(logits, target), logits)
    with ledger(dry=True) as ours:
        torch.autograd.grad(losspool.cross_entropy(logits, target), logits)
    assert [round(each.bytes / 2**20) for each in (ours, plain)] == [164, 360]  # as in docs/kernels.md
    assert ours.bytes <= 0.5 * plain.bytes


def test_counted_bytes_of_upsampled():
    logits, target = torch.randn(1, 19, 128, 256, requires_grad=True), labels(1, 1024, 2048)
    with ledger() as plain:
        enlarged = F.interpolate(logits, (1024, 2048), mode="bilinear")
        torch.autograd.grad(F.cross_entropy(enlarged, target), logits)
    with ledger(dry=True) as ours:
        torch.autograd.grad(losspool.upsampled_cross_entropy(logits, target), logits)
    assert [round(each.bytes / 2**20) for each in (ours, plain)] == [138, 1557]  # as in docs/kernels.md
    assert ours.bytes <= 0.12 * plain.bytes
