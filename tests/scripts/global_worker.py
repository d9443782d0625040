"""One rank of the tests in ``test_processes.py``: RANK RANKS MEETING_POINT. Prints a line of JSON per job."""

import copy
import json
import sys
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import nn

import losspool

rank, ranks, meeting_point = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
OPTIONS = {"p": 1.3, "m": 0.25, "ignore_index": 255}


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


class Batch:
    """The whole batch, which every rank makes, and this rank's part of it."""

    def __init__(self, job):
        g = torch.Generator().manual_seed(0)
        self.images = torch.randn(7, 3, 12, 10, generator=g)
        self.labels = torch.randint(0, 5, (7, 12, 10), generator=g)
        self.labels[torch.rand(self.labels.shape, generator=g) < 0.1] = 255
        self.losses = torch.rand(7, 30, generator=g)
        self.cuts = {2: [0, 5, 7], 3: [0, 1, 5, 7]}[ranks]
        if job == "void":
            self.labels[: self.cuts[1]] = 255
        if job == "empty":
            self.cuts[1] = 0
        self.mine = slice(self.cuts[rank], self.cuts[rank + 1])
        torch.manual_seed(0)
        self.network = nn.Conv2d(3, 5, 3, padding=1)


def follow_one_process(job):
    """Value and gradients under DDP are those of one process with the whole batch."""
    batch, labels, pool = Batch(job), Batch(job).labels, losspool.cross_entropy
    if job == "upsampled":
        pool = losspool.upsampled_cross_entropy
        labels = labels.repeat_interleave(3, 1).repeat_interleave(3, 2)
    shared = nn.parallel.DistributedDataParallel(copy.deepcopy(batch.network))
    options = {**OPTIONS, "trim": 0.2 if job == "trimmed" else 0.0}
    together = pool(shared(batch.images[batch.mine]), labels[batch.mine], **options, scope="global")
    together.backward()
    expected = pool(batch.network(batch.images), labels, **options, scope="batch")
    expected.backward()
    close(together.detach(), expected.detach())
    for got, wanted in zip(shared.parameters(), batch.network.parameters(), strict=True):
        close(got.grad, wanted.grad)
    assert expected.item() > 0


def max_pool(job):
    batch, stats, whole = Batch(job), losspool.PoolingStats(), losspool.PoolingStats()
    local = batch.losses[batch.mine].clone().requires_grad_()
    value = losspool.max_pool(local, m=9, scope="global", stats=stats)
    value.backward()
    close(value.detach(), losspool.max_pool(batch.losses, m=9, scope="batch", stats=whole))
    close(stats.alpha, whole.alpha)
    close(stats.weights, whole.weights[batch.mine])
    close(local.grad, ranks * whole.weights[batch.mine])
    assert stats.valid.item() == 210


def subgroup(job):
    """Ranks 0 and 2 pool by themselves; rank 1 is refused."""
    if ranks < 3:
        return
    batch, group = Batch(job), dist.new_group([0, 2])
    options = {**OPTIONS, "scope": "global", "group": group}
    outputs, labels = batch.network(batch.images[batch.mine]), batch.labels[batch.mine]
    if rank == 1:
        with pytest.raises(ValueError, match="not a member of the group"):
            losspool.cross_entropy(outputs, labels, **options)
        return
    part = torch.cat([batch.images[: batch.cuts[1]], batch.images[batch.cuts[2] :]])
    part_labels = torch.cat([batch.labels[: batch.cuts[1]], batch.labels[batch.cuts[2] :]])
    value = losspool.cross_entropy(outputs, labels, **options)
    close(value.detach(), losspool.cross_entropy(batch.network(part), part_labels, **OPTIONS, scope="batch").detach())


def bad(job):
    """A mistake on rank 1. What this rank hears of it is returned."""
    batch, m = Batch(job), 0.25
    target = batch.labels[batch.mine].clone()
    if rank == 1:
        target[0, 0, 0] = 77 if job == "bad label" else target[0, 0, 0]
        target = target[:, 1:] if job == "bad shape" else target
        m = {"bad setting": "a quarter", "bad agreement": 0.5}.get(job, m)
    try:
        losspool.cross_entropy(batch.network(batch.images[batch.mine]), target, **{**OPTIONS, "m": m}, scope="global")
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


JOBS = {
    **dict.fromkeys(("uneven", "void", "empty", "upsampled", "trimmed"), follow_one_process),
    "max_pool": max_pool,
    "subgroup": subgroup,
    **dict.fromkeys(("bad label", "bad shape", "bad setting", "bad agreement"), bad),
}

dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=ranks)
for name, work in JOBS.items():
    try:
        print(json.dumps({"job": name, "heard": work(name) or "ok"}), flush=True)
    except Exception:
        print(json.dumps({"job": name, "heard": traceback.format_exc()[-2000:]}), flush=True)
        raise  # the other ranks may wait for this one: the launcher ends them
dist.destroy_process_group()
