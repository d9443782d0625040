"""One rank of the tests in ``test_processes.py``: JOB RANK RANKS MEETING_POINT."""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn

import losspool

job, rank, ranks, meeting_point = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=ranks)

# Every rank makes the whole batch and takes its part of it.
g = torch.Generator().manual_seed(0)
images = torch.randn(7, 3, 12, 10, generator=g)
labels = torch.randint(0, 5, (7, 12, 10), generator=g)
labels[torch.rand(labels.shape, generator=g) < 0.1] = 255
cuts = {2: [0, 5, 7], 3: [0, 1, 5, 7]}[ranks]
if job == "void":
    labels[: cuts[1]] = 255
if job == "empty":
    cuts[1] = 0
mine = slice(cuts[rank], cuts[rank + 1])
torch.manual_seed(0)
alone = nn.Conv2d(3, 5, 3, padding=1)
options = {"p": 1.3, "m": 0.25, "ignore_index": 255}


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


if job.startswith("bad"):
    target, m = labels[mine].clone(), 0.25
    if rank == 1:
        target[0, 0, 0] = 77 if job == "bad-label" else target[0, 0, 0]
        target = target[:, 1:] if job == "bad-shape" else target
        m = {"bad-setting": "a quarter", "bad-agreement": 0.5}.get(job, m)
    try:
        losspool.cross_entropy(alone(images[mine]), target, **{**options, "m": m}, scope="global")
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
elif job == "max_pool":
    losses = torch.rand(7, 30, generator=g)
    stats, whole = losspool.PoolingStats(), losspool.PoolingStats()
    local = losses[mine].clone().requires_grad_()
    value = losspool.max_pool(local, m=9, scope="global", stats=stats)
    value.backward()
    expected = losspool.max_pool(losses, m=9, scope="batch", stats=whole)
    close(value.detach(), expected)
    close(stats.alpha, whole.alpha)
    close(stats.weights, whole.weights[mine])
    close(local.grad, ranks * whole.weights[mine])
    assert stats.valid.item() == 210
    print("ok")
elif job == "subgroup":
    group = dist.new_group([0, 2])
    if rank == 1:
        try:
            losspool.cross_entropy(alone(images[mine]), labels[mine], **options, scope="global", group=group)
        except ValueError as error:
            print("ok", error)
    else:
        part = torch.cat([images[: cuts[1]], images[cuts[2] :]])
        part_labels = torch.cat([labels[: cuts[1]], labels[cuts[2] :]])
        value = losspool.cross_entropy(alone(images[mine]), labels[mine], **options, scope="global", group=group)
        close(value.detach(), losspool.cross_entropy(alone(part), part_labels, **options, scope="batch").detach())
        print("ok")
else:
    pool = losspool.cross_entropy
    if job == "upsampled":
        pool = losspool.upsampled_cross_entropy
        labels = labels.repeat_interleave(3, 1).repeat_interleave(3, 2)
    shared = nn.parallel.DistributedDataParallel(copy.deepcopy(alone))
    together = pool(shared(images[mine]), labels[mine], **options, scope="global")
    together.backward()
    expected = pool(alone(images), labels, **options, scope="batch")
    expected.backward()
    close(together.detach(), expected.detach())
    for got, wanted in zip(shared.parameters(), alone.parameters(), strict=True):
        close(got.grad, wanted.grad)
    assert expected.item() > 0
    print("ok")
dist.destroy_process_group()
