"""Commands in processes of their own: started as a user starts them, found through /proc, and ended for certain."""

import contextlib
import functools
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, NamedTuple

from preloaded import STAY, starting

HERE = Path(__file__).parent
PATHS = [str(HERE.parent / "src"), str(HERE)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1", "COLUMNS": "300"}
PATIENCE = 180
"""Seconds until something must have happened: machines of a CI are slow."""
_MARK = "LOSSPOOL_TEST_STARTED_BY"
_ONE_AT_A_TIME = threading.Lock()


class Relatives:
    """Finds what a process has started: by its session, and by a mark in the environment that they inherit."""

    pid: int

    def __init__(self, environment: dict[str, str]) -> None:
        self._mark = secrets.token_hex(8)
        self.environment = {**ENVIRONMENT, _MARK: self._mark, **environment}

    def family(self) -> list[int]:
        """It and its descendants, as far as they live: ranks have sessions of their own, orphans another parent."""
        return [pid for pid in _pids() if alive(pid) and self._is_relative(pid)]

    def _is_relative(self, pid: int) -> bool:
        status = _status(pid)
        return variables(pid).get(_MARK) == self._mark or (status is not None and status.session == self.pid)


class Process(Relatives, subprocess.Popen):
    """All that it says is in one pipe."""

    def __init__(self, *words, **environment: str) -> None:
        Relatives.__init__(self, environment)
        subprocess.Popen.__init__(
            self,
            [sys.executable, *map(str, words)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a test may signal the whole group
        )


class ForkedProcess(Relatives):
    """A module run as ``python -m`` runs it, in a fork of preloaded.py; used like the class above.

    Files given as ``output`` and ``errors`` take the place of the pipe.
    """

    def __init__(self, module: str, *words, output: IO | None = None, errors: IO | None = None, **environment: str):
        super().__init__(environment)
        request = {
            "module": module,
            "words": [str(word) for word in words],
            "environment": self.environment,
            "folder": os.getcwd(),
        }
        reader, writer = os.pipe()
        self._connection = _connect()
        descriptors = [writer if file is None else file.fileno() for file in (output, errors)]
        socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        os.close(writer)
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())
        self.stdout = os.fdopen(reader)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, None]:
        deadline, output = time.monotonic() + timeout, b""
        while select.select([self.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            if not (piece := os.read(self.stdout.fileno(), 1 << 16)):
                break
            output += piece
        self.wait(max(deadline - time.monotonic(), 0))
        self.stdout.close()
        return output.decode(), None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def preload() -> None:
    """Start preloaded.py and wait until it has imported everything."""
    _preloaded()


def _preloaded() -> tuple[Path, socket.socket]:
    with _ONE_AT_A_TIME:
        return _started()


@functools.cache
def _started() -> tuple[Path, socket.socket]:
    """The socket of preloaded.py, and a connection that keeps it alive. The workers of pytest-xdist share one."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)
    path = Path(tempfile.gettempdir(), f"losspool-{run}", "socket")
    with starting():
        if path.exists():
            return path, _stay(path)
        path.parent.mkdir()
        python = path.with_name("python")
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{HERE}/forked_python.py" "{path}" "$@"\n')
        python.chmod(0o755)
        words = [sys.executable, HERE / "preloaded.py", path]
        subprocess.run(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, check=True)
        return path, _stay(path)


def _stay(path: Path) -> socket.socket:
    connection = _connection(path)
    connection.sendall(STAY)
    assert connection.recv(1), f"{path} does not answer"
    return connection


def forked_python() -> dict[str, str]:
    """The environment of a command whose own ``sys.executable -m`` takes a fork of preloaded.py, in milliseconds."""
    return {"FORKED_PYTHON": str(_preloaded()[0].with_name("python"))}


def _connect() -> socket.socket:
    return _connection(_preloaded()[0])


def _connection(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


class Processes:
    """Starts commands. When the block ends, so have they, and whatever they started."""

    def __init__(self) -> None:
        self._started: list[Process | ForkedProcess] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_) -> None:
        for process in self._started:
            process.kill()  # first: it may not be marked yet
            while family := process.family():  # until none is born while the others are killed
                for pid in family:
                    kill(pid)
            process.wait()
            process.stdout.close()

    def python(self, *words, **environment: str) -> Process:
        self._started.append(Process(*words, **environment))
        return self._started[-1]

    def launch(self, *arguments, ranks: int = 1, **options) -> ForkedProcess:
        """``losspool`` with these arguments, as one process or several ranks."""
        return self.fork(*(["fork_ranks", ranks] if ranks > 1 else ["losspool"]), *arguments, **options)

    def torchrun(self, *arguments, restarts: int = 0) -> ForkedProcess:
        """``losspool`` as two ranks that torchrun starts, and starts again."""
        options = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}", "--monitor-interval=0.1"]
        return self.fork("forked_torchrun", *options, "-m", "losspool", *arguments)

    def fork(self, *words, **options) -> ForkedProcess:
        """A module with its arguments, as after ``python -m``; options as :class:`ForkedProcess` takes them."""
        self._started.append(ForkedProcess(*words, **options))
        return self._started[-1]


def outcome(process: Process | ForkedProcess, timeout: float = PATIENCE) -> tuple[int, str]:
    """Exit code and all that was said."""
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def until(condition, seconds: float = PATIENCE) -> bool:
    """Whether the condition came true in this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class _Status(NamedTuple):
    state: str
    parent: int
    session: int


def _status(pid: int) -> _Status | None:
    """None for a process that is gone."""
    try:
        state, parent, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Status(state, int(parent), int(session))


def alive(pid: int) -> bool:
    """A zombie counts as dead: these tests do not check who reaps it."""
    status = _status(pid)
    return status is not None and status.state not in "ZX"


def is_pending(pid: int, number: int) -> bool:
    """Whether a signal waits for a stopped process to continue."""
    (mask,) = re.findall(r"^ShdPnd:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def children(pid: int) -> list[int]:
    return [each for each in _pids() if (status := _status(each)) and status.parent == pid and status.state not in "ZX"]


def ranks(process: Process | ForkedProcess) -> dict[int, int]:
    """Rank -> process number, of what forked_torchrun.py has started."""
    found = {pid: name for pid in children(process.pid) if (name := _name(pid)).startswith("rank ")}
    return {int(name.removeprefix("rank ")): pid for pid, name in found.items()}


def trainings(out: Path) -> dict[str, int]:
    """Run -> process number, of a grid's trainings that run."""
    found = {}
    for pid in _pids():
        with contextlib.suppress(OSError):  # it has just ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:4] == ["-m", "losspool.cli.job", "train"]:  # not a shell that waits for it
                folder = Path(words[words.index("--out") + 1])
                found |= {folder.name: pid} if out in folder.parents else {}
    return found


def _name(pid: int) -> str:
    """Of its main thread; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid: int) -> int:
    return _status(pid).parent


def has_torch(pid: int) -> bool:
    """Whether the process has loaded it."""
    return "/libtorch" in Path(f"/proc/{pid}/maps").read_text()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty for one that is gone, or somebody else's."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(each.split("=", 1) for each in content.split("\0") if "=" in each)


def description(out: Path) -> dict:
    return json.loads((out / "run.json").read_text())
