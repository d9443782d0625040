"""A lock on a run's folder: two trainings in one would overwrite each other."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from losspool.segmentation.base import UserError

LOCK = ".lock"
PATIENCE = 15.0
"""Seconds to wait for a process that trains in the folder: it may be saving its state after a signal."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""What file systems without locks answer. There a run goes without one."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder for this process alone. The system releases the lock when the process ends, however it ends."""
    lock = FileLock(folder / LOCK, timeout=PATIENCE, poll_interval=0.2, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UserError(f"{folder}: another process is training in it") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    try:
        yield
    finally:
        lock.release()
