"""What training a network costs on this machine: memory and time, measured. The only file of a plan that trains."""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor

from losspool import upsampled_cross_entropy
from losspool.segmentation.models import build_model

_PROBE = 128  # pixels: height and width of the crops that memory is measured with
_ROUNDS = 3


def device_memory() -> float:
    """Bytes that training may use: those of the GPU, or of the machine, that are free."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError):  # not on this system
        return 4e9


def bytes_per_pixel(name: str, classes: int) -> float:
    """Memory that a training step holds for each pixel of a crop: what the network keeps for its backward pass."""
    model = build_model(name, classes)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    parameters = {each.untyped_storage().data_ptr() for each in model.module.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model.module.train()(torch.rand(2, 3, _PROBE, _PROBE))
    del output
    return sum(size for place, size in kept.items() if place not in parameters) / (2 * _PROBE**2)


def seconds_per_step(name: str, classes: int, crop: tuple[int, int], batch: int) -> float:
    """The fastest of a few training steps, without reading and cutting the crops."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module = build_model(name, classes).module.to(device).train()
    images, labels = torch.rand(batch, 3, *crop), torch.randint(classes, (batch, *crop))
    return min(_step(module, images.to(device), labels.to(device)) for _ in range(_ROUNDS))


def _step(module: torch.nn.Module, images: Tensor, labels: Tensor) -> float:
    began = time.perf_counter()
    logits = module(images)
    upsampled_cross_entropy(logits, labels).backward()
    if images.is_cuda:
        torch.cuda.synchronize()
    module.zero_grad(set_to_none=True)
    return time.perf_counter() - began
