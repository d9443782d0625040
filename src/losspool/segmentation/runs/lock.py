"""A lock on a run's folder. Two processes that train in the same folder would overwrite each other's files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from losspool.segmentation.base import UserError

LOCK = ".lock"
PATIENCE = 15.0
"""Seconds to wait for the lock: its holder may be saving its state after a signal. The variable below overrides it."""
PATIENCE_VARIABLE = "LOSSPOOL_LOCK_PATIENCE"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""Errors of file systems without locks. On these, a run trains without a lock."""


class RunLock:
    """Locks a folder for this process. The system releases the lock when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FileLock(folder / LOCK, poll_interval=0.2, thread_local=False, fallback_to_soft=False)
        self.held = False

    def claim(self) -> RunLock:
        """Take the lock, or raise ``UserError`` if another process holds it. Creates the folder if necessary."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=float(os.environ.get(PATIENCE_VARIABLE, PATIENCE)))
        except Timeout:
            raise UserError(f"{self._folder}: another process is training in it") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(f"{self._folder}: cannot be written ({error.strerror})") from error
        self.held = True
        return self

    def release(self) -> None:
        self._lock.release()
        self.held = False

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
