"""Checkpoints: one file per step, written atomically, verified when read, and loaded without running code."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from losspool.segmentation.base import (
    NotImportableError,
    UserError,
    first_line,
    out_of_memory,
    remove,
    replacing,
    say,
    sweep,
)

FORMAT = 1
_NAME = re.compile(r"step-(\d{7,})\.pt")


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:07d}.pt"


def steps_in(folder: Path) -> list[int]:
    """Steps that have a checkpoint, oldest first."""
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in found if match)


def write_checkpoint(folder: Path, step: int, content: Mapping[str, Any]) -> Path:
    """Write a checkpoint. ``content`` may hold tensors, numbers, strings, and lists and dicts of these."""
    path = checkpoint_path(folder, step)
    with replacing(path) as partial, open(partial, "wb") as file:
        try:
            torch.save({"format": FORMAT, "checksum": _checksum(content), "content": dict(content)}, file)
        except RuntimeError as error:
            # When a write fails, torch still tries to close its archive, and reports only that this failed.
            raise _cause(error) or error from None
    return path


def _cause(error: BaseException | None) -> BaseException | None:
    """The earlier error that led to this one: an OSError, or a second Ctrl-C."""
    while isinstance(error, Exception) and not isinstance(error, OSError):
        error = error.__context__
    return error


class DamagedError(UserError):
    """A checkpoint that is permanently corrupt."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load the content that :func:`write_checkpoint` stored, on the CPU.

    Code in the file is never run. Raises :class:`DamagedError` if the file is corrupt.
    """
    try:
        with open(path, "rb") as file:
            stored = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: the checkpoint does not exist") from None
    except OSError as error:  # the disk may be unavailable for now, which does not make the file corrupt
        if error.errno == errno.EINVAL:  # torch seeks to a negative offset when the end of the file is missing
            raise DamagedError(f"{path}: the checkpoint is damaged (it is cut off)") from None
        raise UserError(f"{path}: the checkpoint cannot be read ({error.strerror})") from None
    except Exception as error:  # corrupt bytes can make the reader raise anything
        if out_of_memory(error):
            raise UserError(f"{path}: the checkpoint does not fit into memory") from None
        raise DamagedError(f"{path}: the checkpoint is damaged, or asks to run code ({first_line(error)})") from None
    if not isinstance(stored, dict) or not {"format", "checksum", "content"} <= set(stored):
        raise DamagedError(f"{path}: not a checkpoint of losspool")
    if type(stored["format"]) is not int or stored["format"] != FORMAT:
        raise DamagedError(f"{path}: a checkpoint of format {stored['format']!r}; this version reads format {FORMAT}")
    content = stored["content"]
    try:
        whole = isinstance(content, dict) and str(stored["checksum"]) == _checksum(content)
    except (RuntimeError, TypeError):  # tensors of a kind that is never written
        whole = False
    if not whole:
        raise DamagedError(f"{path}: the checkpoint is damaged (its checksum is wrong)")
    return dict(content)


def checkpoint_weights(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights that predict: the averaged ones where the run has averaged them."""
    return {**content["model"], **content.get("averaged", {})}


@contextmanager
def checkpoint_errors(path: Path, what: str) -> Iterator[None]:
    """Wrap code that unpacks a checkpoint: a missing entry or a wrong type becomes a ``UserError``."""
    try:
        yield
    except NotImportableError:
        raise  # the machine lacks something, and the checkpoint is as it should be
    except (UserError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(f"{path}: the checkpoint does not fit {what} ({problem})") from error


def newest_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Read the newest checkpoint that is intact, and report each one that is skipped. None if there are none."""
    steps = steps_in(folder)
    for step in reversed(steps):
        try:
            return read_checkpoint(checkpoint_path(folder, step))
        except DamagedError as error:
            say(f"skipped: {error}")
    if steps:
        raise UserError(f"{folder}: none of the run's checkpoints can be used; to start over, pass another --out")
    return None


def prune(folder: Path, *, step: int, last: int, keep: Iterable[int]) -> None:
    """Delete checkpoints up to ``step``, except the newest ``last`` and those in ``keep``.

    Later checkpoints could not be read when the run was resumed. They do not count towards ``last``, and training
    will overwrite them. The temporary files of killed writers are deleted too.
    """
    steps = [each for each in steps_in(folder) if each <= step]
    for each in set(steps[:-last]) - set(keep):
        remove(checkpoint_path(folder, each))
    sweep(folder)


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
