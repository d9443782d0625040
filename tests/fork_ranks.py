"""Runs ``losspool`` as several ranks, forked from a process that has it loaded: torchrun would start each from scratch.

The first argument is the number of ranks. As under torchrun, a rank that fails ends the others.
"""

import os
import runpy
import signal
import socket
import sys


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def wait(ranks: list[int]) -> int:
    """The exit code of the first rank that fails, or 0."""
    failed = 0
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    return failed


if __name__ == "__main__":
    size = int(sys.argv.pop(1))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    os.environ.update(WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    started = []
    for rank in range(size):
        if pid := os.fork():
            started.append(pid)
        else:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            runpy.run_module("losspool", run_name="__main__", alter_sys=True)
            break
    else:
        sys.exit(wait(started))
