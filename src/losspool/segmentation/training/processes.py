"""Devices and processes, with Lightning Fabric."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed import DistError, ProcessGroup
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from losspool.segmentation.base import UserError, end_with_parent, first_line

Thing = TypeVar("Thing")


def join(precision: str, timeout: float) -> Fabric:
    """Launch Fabric in a single process or in a rank that torchrun started, on one or more machines (gloo or NCCL).

    ``timeout``: see ``train.timeout``.
    """
    accelerated = torch.cuda.is_available()
    if precision == "16-mixed" and not accelerated:
        raise UserError("train.precision=16-mixed needs an accelerator; on the CPU, use 32-true or bf16-mixed")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # A torchrun that is killed with SIGKILL leaves its ranks running. Have them save their state and exit, which
        # frees the folder.
        end_with_parent(signal.SIGTERM)
    limit = timedelta(seconds=timeout)
    world, local = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    machines = int(os.environ.get("GROUP_WORLD_SIZE", world // local))
    if machines * local != world:
        raise UserError(
            f"this machine has {local} of {world} processes on {machines} machines; start torchrun with the same "
            f"--nproc-per-node on all of them"
        )
    fabric = Fabric(
        accelerator="cuda" if accelerated else "cpu",  # not MPS, which lacks the float64 of our counts
        strategy=DDPStrategy(timeout=limit) if world > 1 else "auto",
        devices=local,
        num_nodes=machines,
        precision=precision,  # type: ignore[arg-type]  # one that TrainConfig takes
        # Named, because Fabric would take a single process on a Slurm node for one of many.
        plugins=[TorchElasticEnvironment() if world > 1 else LightningEnvironment()],
    )
    try:
        if world > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
            _init_under_torchrun("nccl" if accelerated else "gloo", limit)
        fabric.launch()
    except RuntimeError as error:
        raise_if_lost(error, timeout, "as the processes met")
        raise
    return fabric


def gathered(fabric: Fabric, mine: Thing) -> list[Thing]:
    """Collect ``mine`` from every rank."""
    if fabric.world_size == 1:
        return [mine]
    everyone: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(everyone, mine)
    return everyone


def joined(fabric: Fabric, mine: list[Thing]) -> list[Thing]:
    """The lists of all ranks, one after the other."""
    return [each for part in gathered(fabric, mine) for each in part]


def handed_out(hosts: ProcessGroup | None, mine: Thing) -> Thing:
    """What ``mine`` is on rank 0. Only rank 0's is used; ``hosts`` is a :func:`host_group`."""
    if hosts is None:
        return mine
    things: list[Any] = [mine]
    torch.distributed.broadcast_object_list(things, 0, hosts)
    return cast(Thing, things[0])


def raise_if_lost(error: BaseException, timeout: float, when: str) -> None:
    """Raise ``UserError`` if ``error`` is that of a collective: another process is gone, or the network is.

    ``timeout``: see ``train.timeout``. gloo raises a plain RuntimeError, with its source file in the text.
    """
    if isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower()):
        raise UserError(
            f"another process ended or did not answer within train.timeout = {timeout:g} seconds, {when} "
            f"({first_line(error)})"
        ) from error


def host_group(fabric: Fabric, timeout: float) -> ProcessGroup | None:
    """A group in which ranks talk without their devices. None in a single process. Every rank must call this."""
    if fabric.world_size == 1:
        return None
    if torch.distributed.get_backend() == "gloo":
        return torch.distributed.group.WORLD
    return torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))


def any_rank(group: ProcessGroup | None, mine: bool) -> bool:
    """Whether ``mine`` is true on any rank of a :func:`host_group`."""
    if group is None:
        return mine
    flag = torch.tensor([mine], dtype=torch.int32)
    torch.distributed.all_reduce(flag, group=group)
    return bool(flag)


def _init_under_torchrun(backend: str, limit: timedelta) -> None:
    """Initialise the process group under a name that is new in every round of torchrun's rendezvous.

    torchrun keeps the ranks' store across restarts, with the addresses of dead ranks in it: without a new name, about
    every second restart was refused or hung. The restart count does not serve as one, because it differs between
    machines: a machine that comes back counts from zero. So rank 0 makes up a name and answers every rank that asks,
    until all ranks of this round have it.
    """
    store, rank, world = next(rendezvous("env://", timeout=limit))
    mine = uuid4().hex
    name = _spread_name(store, mine, world, limit) if rank == 0 else _ask_for_name(store, mine, rank, limit)
    own = PrefixStore(f"round-{name}", store)
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=limit)


def _ask_for_name(store: Store, mine: str, rank: int, limit: timedelta) -> str:
    store.set(f"asks-{rank}", mine)
    store.wait([f"name-for-{mine}"], limit)
    name = store.get(f"name-for-{mine}").decode()
    store.set(f"{name}-heard-{rank}", "")
    return name


def _spread_name(store: Store, name: str, world: int, limit: timedelta) -> str:
    """A rank may find the question of its predecessor, which died: answer until the rank itself has heard."""
    deadline = time.monotonic() + limit.total_seconds()
    waiting = set(range(1, world))
    while waiting:
        for rank in waiting:
            if store.check([f"asks-{rank}"]):
                store.set(f"name-for-{store.get(f'asks-{rank}').decode()}", name)
        waiting = {rank for rank in waiting if not store.check([f"{name}-heard-{rank}"])}
        if waiting and time.monotonic() > deadline:
            raise UserError(
                f"rank {min(waiting)} did not join within train.timeout = {limit.total_seconds():g} seconds"
            )
        time.sleep(0.02 if waiting else 0)
    return name
