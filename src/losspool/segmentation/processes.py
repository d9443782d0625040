"""Devices and processes, by Lightning Fabric."""

from __future__ import annotations

import os

import torch
from lightning_fabric import Fabric

from losspool.segmentation.errors import UserError


def join(precision: str) -> Fabric:
    """One process, or one of those that torchrun started: on one machine or many, gloo or NCCL."""
    accelerated = torch.cuda.is_available()
    if precision == "16-mixed" and not accelerated:
        raise UserError("train.precision=16-mixed needs an accelerator; the CPU has 32-true and bf16-mixed")
    world, local = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator="cuda" if accelerated else "cpu",  # counts are kept in float64, which MPS lacks
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # type: ignore[arg-type]  # one of PRECISIONS
    )
    fabric.launch()
    return fabric
