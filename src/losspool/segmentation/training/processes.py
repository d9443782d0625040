"""Devices and processes, with Lightning Fabric."""

from __future__ import annotations

import os
import signal
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from losspool.segmentation.base import UserError, end_with_parent

Thing = TypeVar("Thing")


def join(precision: str) -> Fabric:
    """Launch Fabric in a single process or in a rank that torchrun started, on one or more machines (gloo or NCCL)."""
    accelerated = torch.cuda.is_available()
    if precision == "16-mixed" and not accelerated:
        raise UserError("train.precision=16-mixed needs an accelerator; on the CPU, use 32-true or bf16-mixed")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # A torchrun that is killed with SIGKILL leaves its ranks running. Have them save their state and exit, which
        # frees the folder.
        end_with_parent(signal.SIGTERM)
    world, local = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator="cuda" if accelerated else "cpu",  # not MPS, which lacks the float64 of our counts
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # type: ignore[arg-type]  # one that TrainConfig takes
        # Named, because Fabric would take a single process on a Slurm node for one of many.
        plugins=[TorchElasticEnvironment() if world > 1 else LightningEnvironment()],
    )
    if world == local > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0:
        _init_after_restart("nccl" if accelerated else "gloo")
    fabric.launch()
    return fabric


def gathered(fabric: Fabric, mine: Thing) -> list[Thing]:
    """Collect ``mine`` from every rank."""
    if fabric.world_size == 1:
        return [mine]
    everyone: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(everyone, mine)
    return everyone


def host_group(fabric: Fabric) -> ProcessGroup | None:
    """A group in which ranks talk without their devices. None in a single process. Every rank must call this."""
    if fabric.world_size == 1:
        return None
    if torch.distributed.get_backend() == "gloo":
        return torch.distributed.group.WORLD
    return torch.distributed.new_group(backend="gloo")


def any_rank(group: ProcessGroup | None, mine: bool) -> bool:
    """Whether ``mine`` is true on any rank of a :func:`host_group`."""
    if group is None:
        return mine
    flag = torch.tensor([mine], dtype=torch.int32)
    torch.distributed.all_reduce(flag, group=group)
    return bool(flag)


def _init_after_restart(backend: str) -> None:
    """Initialise the process group under a new prefix, so that restarted ranks ignore the addresses of dead ones.

    On one machine, torchrun keeps its store across restarts, including the addresses. Without the prefix, about every
    second restart was refused or hung. On several machines the restart count may differ between machines, so there
    the rendezvous is left to torchrun.
    """
    store, rank, world = next(rendezvous("env://"))
    own = PrefixStore(f"restart-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world)
