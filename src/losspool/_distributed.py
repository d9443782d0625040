"""Pooling over several processes: the collectives, and errors that every rank hears of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

_MESSAGE_BYTES = 1024


def resolve_group(scope: str, group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """The group that ``scope="global"`` pools over, or None where the batch of this process is all."""
    if scope != "global" and group is None:
        return None
    initialised = dist.is_available() and dist.is_initialized()
    if group is not None:
        if scope != "global":
            raise ValueError(f'a group is used by scope="global" only, and scope is {scope!r}')
        if not initialised:
            raise ValueError(f"group={group!r} was given, but torch.distributed has no initialised process group")
    if scope != "global" or not initialised:
        return None
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise ValueError("this process is not a member of the group that it was asked to pool over")
    return group


def gatherer(group: dist.ProcessGroup) -> Callable[[Tensor], Tensor]:
    """A function that stacks every rank's tensor, in the same order on all of them."""

    def gather(tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor, group=group)
        return torch.stack(parts)

    return gather


@contextmanager
def shared_errors(group: dist.ProcessGroup | None, device: torch.device, fingerprint: list[str]) -> Iterator[None]:
    """Raise an error of one rank on all of them, so that none waits for a rank that has left.

    The same for ranks that disagree: the body appends to ``fingerprint`` what must be the same on
    all. Reading the others' state makes the host wait, so this is done for CPU tensors alone; on
    an accelerator the failing process ends, and the launcher ends the others.
    """
    if group is None or device.type != "cpu":
        yield
        return
    error: Exception | None = None
    try:
        yield
    except Exception as caught:  # whatever it is: the others must hear of it
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
    """Every rank's text, and whether it is an error."""
    message = text.encode()[:_MESSAGE_BYTES]
    report = torch.zeros(_MESSAGE_BYTES + 1, dtype=torch.uint8)
    report[0] = int(failed)
    report[1 : len(message) + 1] = torch.tensor(list(message), dtype=torch.uint8)
    reports = gatherer(group)(report).tolist()
    return [(bool(row[0]), bytes(row[1:]).rstrip(b"\0").decode(errors="replace")) for row in reports]
