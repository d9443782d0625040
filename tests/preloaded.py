"""A process that has imported torch and the package, and forks for each command that it is sent.

Importing takes a process four seconds, and the tests start some eighty. Run as a script, with the path of a
socket: it goes to the background once it is ready, and ends with the last process that has asked it to stay.
"""

import contextlib
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile

from filelock import FileLock, Timeout

STAY = b"stay"
"""What a process sends that needs this one."""


def starting(blocking: bool = True) -> FileLock:
    """One process at a time looks whether this one runs, or ends it."""
    return FileLock(os.path.join(tempfile.gettempdir(), f"losspool-tests-{os.getuid()}.lock"), blocking=blocking)


def serve(path: str) -> tuple[str, list[str]]:
    """Fork for every request. Returns in the forked processes only: the module to run, and its arguments."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    if os.fork():
        os._exit(0)  # the test that waits for this process now finds the socket
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    selector = selectors.DefaultSelector()
    for source in (listener, reader):
        selector.register(source, selectors.EVENT_READ)
    owners: list[socket.socket] = []
    running: dict[int, socket.socket] = {}
    while True:
        ready = [key.fileobj for key, _ in selector.select(None if owners else 0.1)]
        for owner in [each for each in owners if each in ready]:
            selector.unregister(owner)
            owners.remove(owner)
            owner.close()
        if not (owners or ready):
            with contextlib.suppress(Timeout), starting(blocking=False):  # or another process may be about to ask
                shutil.rmtree(os.path.dirname(path))
                os._exit(0)
        if reader in ready:
            os.read(reader, 4096)
            bury(running)
        if listener in ready:
            connection, _ = listener.accept()
            message, streams, *_ = socket.recv_fds(connection, 1 << 20, 3)
            if message == STAY:
                owners.append(connection)
                selector.register(connection, selectors.EVENT_READ)
                connection.sendall(b"\n")
            elif pid := os.fork():
                running[pid] = connection
                for each in streams:
                    os.close(each)
                connection.sendall(f"{pid}\n".encode())
            else:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (*owners, listener, connection, *running.values()):
                    each.close()
                os.close(reader)
                os.close(writer)
                return become(streams, **json.loads(message))


def bury(running: dict[int, socket.socket]) -> None:
    """Send the exit code of each process that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def become(streams: list[int], module: str, words: list[str], environment: dict, folder: str) -> tuple[str, list[str]]:
    """What a new process would have: its own session, output, errors and perhaps input, environment and folder."""
    os.setsid()
    for each, place in zip(streams, (1, 2, 0), strict=False):
        os.dup2(each, place)
        os.close(each)
    # As Python opens them: the old ones believe that they can seek.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = environment.get("FORKED_PYTHON", sys.executable)
    return module, words


if __name__ == "__main__":
    import losspool.cli
    import losspool.lab.grids
    import losspool.segmentation.training  # noqa: F401

    # A fork that looks through what was imported, as each does when it ends, has to copy all of it: a second's work.
    gc.collect()
    gc.freeze()
    name, sys.argv[1:] = serve(sys.argv[1])
    runpy.run_module(name, run_name="__main__", alter_sys=True)
