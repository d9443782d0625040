"""Checkpoints: one file per step, written whole or not at all, verified when read, and free of code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from losspool.segmentation.console import console, plain
from losspool.segmentation.errors import UserError
from losspool.segmentation.storage import PARTIAL, replacing

FORMAT = 1
_NAME = re.compile(r"step-(\d+)\.pt")


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:07d}.pt"


def steps_in(folder: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first."""
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in found if match)


def write_checkpoint(folder: Path, step: int, content: Mapping[str, Any]) -> Path:
    """``content`` may hold tensors, numbers, texts, and lists and dicts of these."""
    path = checkpoint_path(folder, step)
    with replacing(path) as partial, open(partial, "wb") as file:
        try:
            torch.save({"format": FORMAT, "checksum": _checksum(content), "content": dict(content)}, file)
        except RuntimeError as error:
            # Where a write fails, torch goes on to close its archive, and that it cannot is all that it tells.
            raise _cause(error) or error from None
    return path


def _cause(error: BaseException | None) -> OSError | None:
    """What the system said before."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What :func:`write_checkpoint` was given, on the CPU. No code of the file is run; damage is named."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: the checkpoint does not exist") from None
    except Exception as error:  # the reader raises whatever the bytes lead it to
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: the checkpoint is damaged, or asks to run code ({told})") from None
    if not isinstance(stored, dict) or not {"format", "checksum", "content"} <= set(stored):
        raise UserError(f"{path}: not a checkpoint of losspool")
    if stored["format"] != FORMAT:
        raise UserError(f"{path}: a checkpoint of format {stored['format']!r}; this version reads format {FORMAT}")
    if stored["checksum"] != _checksum(stored["content"]):
        raise UserError(f"{path}: the checkpoint is damaged (its checksum is wrong)")
    return dict(stored["content"])


def newest_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest that can be read; those that cannot are named and passed over. None if there is none."""
    for step in reversed(steps_in(folder)):
        try:
            return read_checkpoint(checkpoint_path(folder, step))
        except UserError as error:
            console.print(plain(f"passed over: {error}"), markup=False, soft_wrap=True)
    return None


def prune(folder: Path, *, last: int, keep: Iterable[int]) -> None:
    """Delete all but the newest ``last`` and the steps in ``keep``, and what a killed writer left behind."""
    steps = steps_in(folder)
    for step in set(steps[:-last]) - set(keep):
        checkpoint_path(folder, step).unlink(missing_ok=True)
    for leftover in folder.glob(f".*{PARTIAL}"):
        leftover.unlink(missing_ok=True)


def _checksum(value: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in value:
            digest.update(f"{key!r}:".encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()))
    else:
        digest.update(f"{type(value).__name__}:{value!r}".encode())
