"""Pooling across processes: collectives, and errors raised on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class LostGroup:
    """Stands for the process group of a module that was pickled."""

    ranks: tuple[int, ...]

    @classmethod
    def of(cls, group: object) -> LostGroup | None:
        """None stands for the default group, which every process has."""
        if group is None or isinstance(group, cls):
            return group
        if group is dist.group.WORLD:
            return None
        try:
            return cls(tuple(dist.get_process_group_ranks(group)))  # type: ignore[arg-type]
        except (KeyError, ValueError):  # it was destroyed
            return cls(())


def resolve_group(scope: str, group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """Return the group that ``scope="global"`` pools over, or None to pool this process's batch only."""
    if scope != "global" and group is None:
        return None
    initialised = dist.is_available() and dist.is_initialized()
    if isinstance(group, LostGroup):
        ranks = f" of the ranks {', '.join(map(str, group.ranks))}" if group.ranks else ""
        raise ValueError(f"this module was pickled, without its process group{ranks}; set its .group")
    if group is not None:
        if scope != "global":
            raise ValueError(f'group is only used with scope="global", got scope={scope!r}')
        if not initialised:
            raise ValueError(f"group={group!r} was given, but torch.distributed is not initialised")
    if scope != "global" or not initialised:
        return None
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise ValueError("this process is not a member of the group to pool over")
    return group


def exchanger(group: dist.ProcessGroup) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function that adds the counts of all ranks, and stacks their sums, with one all-reduce.

    An all-reduce sends the counts twice, whatever the number of ranks; gathering them would send them once per rank.
    Counts are integers, so the order of the additions does not matter. The order would matter for sums: each rank has
    places of its own for their bits, to which the others add zero, and every rank adds them in the same order.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)

    def exchange(counts: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        places = counts.new_zeros(ranks, *sums.shape)
        places[rank] = sums.contiguous().view(torch.int64)
        packed = torch.cat([counts.flatten(), places.flatten()])
        dist.all_reduce(packed, group=group)
        totals, bits = packed.split([counts.numel(), places.numel()])
        return totals.view(counts.shape), bits.view(torch.float64).view(places.shape)

    return exchange


@contextmanager
def shared_errors(group: dist.ProcessGroup | None, device: torch.device, fingerprint: list[str]) -> Iterator[None]:
    """Raise an error from any rank on all ranks, so that none waits for a rank that has left.

    Also raise if the ranks disagree: the body appends to ``fingerprint`` whatever must be equal on
    all ranks. The exchange makes the host wait for the device, so it only runs for CPU tensors. On
    an accelerator the failing process exits and the launcher stops the others.
    """
    if group is None or device.type != "cpu":
        yield
        return
    error: Exception | None = None
    try:
        yield
    except Exception as caught:  # any error: the other ranks must raise too
        error = caught
    texts = _exchange(str(error) if error else ", ".join(fingerprint), failed=error is not None, group=group)
    if error:
        raise error
    for rank, (failed, text) in enumerate(texts):
        if failed:
            raise ValueError(f"rank {rank} of the group: {text}")
        if text != texts[0][1]:
            raise ValueError(f"the ranks of the group disagree: rank 0 has {texts[0][1]}, rank {rank} has {text}")


def _exchange(text: str, *, failed: bool, group: dist.ProcessGroup) -> list[tuple[bool, str]]:
    """Return for each rank whether it failed, and its text."""
    message = text.encode()[:_MESSAGE_BYTES]
    report = torch.zeros(_MESSAGE_BYTES + 1, dtype=torch.uint8)
    report[0] = int(failed)
    report[1 : len(message) + 1] = torch.tensor(list(message), dtype=torch.uint8)
    reports = [torch.empty_like(report) for _ in range(dist.get_world_size(group))]
    dist.all_gather(reports, report, group=group)
    rows = [each.tolist() for each in reports]
    return [(bool(row[0]), bytes(row[1:]).rstrip(b"\0").decode(errors="replace")) for row in rows]
