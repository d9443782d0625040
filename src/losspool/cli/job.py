"""``python -m losspool.cli.job …``: a losspool command that ends when whoever started it is gone.

The starter holds the other end of standard input. When it dies, however suddenly, the pipe closes, and this process
asks itself to stop: a training saves its state, so that nothing runs on unseen and nothing is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from losspool import cli


def _end_with_the_starter() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    cli.main()
