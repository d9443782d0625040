"""How a process ends that is one of several."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch


@contextmanager
def leaving() -> Iterator[None]:
    """Around all that a process does. One of several ends here, at once, instead of being taken apart.

    gloo's threads abort an interpreter that ends before them; and to end them first may take for ever, because one that
    frees a tensor wants the lock that is held by whoever waits for it.
    """
    code: object = 0
    try:
        yield
    except BaseException as error:
        if not _of_several():
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    if _of_several():
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it may be closed, or gone
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _of_several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
