"""``python -m losspool.cli.job …``: a losspool command that stops when its parent process ends.

The parent holds the other end of standard input. When it dies, however suddenly, the pipe closes and this process
sends itself SIGTERM. Training then saves its state, so no orphan keeps running and no work is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from losspool import cli


def _stop_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    cli.main()
