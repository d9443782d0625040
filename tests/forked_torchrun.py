"""``python -m torch.distributed.run``, whose ranks are forks of this process: interpreters would import for seconds.

The ranks are torchrun's children, with the environment that it gives them and a process group of their own. A helper
makes them: it is forked before torchrun has threads, and torchrun adopts what it forks.
"""

import ctypes
import json
import os
import runpy
import socket
import subprocess
import sys
import time

from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36


class Rank:
    """Stands in for the ``subprocess.Popen`` of torchrun."""

    requests: socket.socket

    def __init__(self, args: tuple[str, ...], env: dict[str, str], stdout=None, stderr=None, start_new_session=True):
        assert stdout is stderr is None, "the output of forked ranks cannot be redirected"
        self.args, self.returncode = args, None
        self.requests.sendall(json.dumps([args[args.index("-m") + 1 :], env]).encode() + b"\n")
        with self.requests.makefile() as answers:
            self.pid = int(answers.readline())

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return code


def fork_ranks(requests: socket.socket, launcher: int) -> str:
    """Fork for every request. Returns in the ranks only: the module to run."""
    lines = requests.makefile()
    for line in lines:
        reader, writer = os.pipe()
        if between := os.fork():
            os.waitpid(between, 0)  # from now on, its child is torchrun's
            requests.sendall(os.read(reader, 100))
            os.close(reader)
            os.close(writer)
        elif rank := os.fork():
            os.write(writer, f"{rank}\n".encode())
            os._exit(0)
        else:
            for each in (reader, writer):
                os.close(each)
            lines.close()
            requests.close()
            return become(*json.loads(line), launcher)
    os._exit(0)


def become(words: list[str], environment: dict[str, str], launcher: int) -> str:
    """A process group of its own in torchrun's session, by which the tests find it, and a name with its rank."""
    os.setpgid(0, 0)
    while os.getppid() != launcher:
        time.sleep(0.001)
    ctypes.CDLL(None).prctl(_SET_NAME, f"rank {environment['RANK']}".encode())
    os.environ.clear()
    os.environ.update(environment)
    module, *sys.argv[1:] = words
    return module


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    Rank.requests, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        subprocess_handler.Popen = Rank
        # It looks through the sources of all modules, for the name of a method in a log: 0.3 seconds per message.
        dynamic_rendezvous.get_method_name = lambda depth=2: ""
        module = "torch.distributed.run"
    else:
        Rank.requests.close()
        module = fork_ranks(theirs, os.getppid())
    runpy.run_module(module, run_name="__main__", alter_sys=True)
