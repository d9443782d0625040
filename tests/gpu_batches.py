"""Batches for the tests that need a GPU, and what a rank of theirs does. A spawned process imports this by its name."""

import torch
import torch.distributed as dist

import losspool


def batch(classes=19, size=(65, 77), dtype=torch.float32, coarse=None, images=2, device="cuda"):
    g = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(images, classes, *(coarse or size), generator=g)).to(device, dtype).requires_grad_()
    labels = torch.randint(0, classes, (images, *size), generator=g)
    return logits, labels.masked_fill(torch.rand(labels.shape, generator=g) < 0.1, 255).to(device)


def gradient(function, logits, *arguments, **options):
    loss = function(logits, *arguments, **options)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


def compare_rank(rank, backend, port, failures):
    """Pool half of a batch as one of two ranks, and all of it alone."""
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    whole, labels = batch(images=4, device=device)
    half = slice(2 * rank, 2 * rank + 2)
    part = whole.detach()[half].clone().requires_grad_()
    loss, got = gradient(losspool.cross_entropy, part, labels[half], ignore_index=255, scope="global")
    truth, expected = gradient(losspool.cross_entropy, whole, labels, ignore_index=255, scope="batch")
    if abs(loss / truth - 1) > 1e-6 or (got - 2 * expected[half]).abs().max() > 1e-5 * expected.abs().max():
        failures.put(f"rank {rank}: {loss.item()} instead of {truth.item()}")
    dist.destroy_process_group()
