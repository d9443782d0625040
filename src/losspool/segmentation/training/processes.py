"""Devices and processes, by Lightning Fabric."""

from __future__ import annotations

import os
import signal
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from losspool.segmentation.base import UserError, end_with_parent

Thing = TypeVar("Thing")


def join(precision: str) -> Fabric:
    """One process, or one of those that torchrun started: on one machine or many, gloo or NCCL."""
    accelerated = torch.cuda.is_available()
    if precision == "16-mixed" and not accelerated:
        raise UserError("train.precision=16-mixed needs an accelerator; the CPU has 32-true and bf16-mixed")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun that is killed with -9 takes nobody along: the ranks save what they have, and free the folder.
        end_with_parent(signal.SIGTERM)
    world, local = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator="cuda" if accelerated else "cpu",  # counts are kept in float64, which MPS lacks
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # type: ignore[arg-type]  # one that TrainConfig takes
    )
    if world == local > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0:
        _meet_anew("nccl" if accelerated else "gloo")
    fabric.launch()
    return fabric


def gathered(fabric: Fabric, mine: Thing) -> list[Thing]:
    """What each rank has."""
    if fabric.world_size == 1:
        return [mine]
    everyone: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(everyone, mine)
    return everyone


def _meet_anew(backend: str) -> None:
    """Restarted processes must not find each other by the addresses of those that died.

    torchrun on one machine keeps its store through restarts, addresses included: about every second restart was refused
    or hung. On several machines the count of restarts may differ between them, so there it is left to torchrun.
    """
    store, rank, world = next(rendezvous("env://"))
    own = PrefixStore(f"restart-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world)
