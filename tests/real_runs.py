"""Commands in processes of their own: started as a user starts them, found through /proc, and ended for certain."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PATHS = [str(HERE.parent / "src"), str(HERE)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1", "COLUMNS": "300"}
PATIENCE = 180
"""Seconds until something must have happened: machines of a CI are slow."""
_MARK = "LOSSPOOL_TEST_STARTED_BY"


class Process(subprocess.Popen):
    """All that it says is in one pipe. A mark in the environment tells what it has started, and they in turn."""

    def __init__(self, *words, **environment: str) -> None:
        self.mark = secrets.token_hex(8)
        super().__init__(
            [sys.executable, *map(str, words)],
            env={**ENVIRONMENT, _MARK: self.mark, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a test may signal the whole group
        )

    def family(self) -> list[int]:
        """It and its descendants, as far as they live: ranks have sessions of their own, orphans another parent."""
        return [pid for pid in _pids() if alive(pid) and _variables(pid).get(_MARK) == self.mark]


class Processes:
    """Starts commands. When the block ends, so have they, and whatever they started."""

    def __init__(self) -> None:
        self._started: list[Process] = []

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

    def launch(self, *arguments, processes: int = 1, restarts: int = 0, **environment: str) -> Process:
        """``losspool`` with these arguments; as several ranks, under torchrun."""
        ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        start = [*ranks, f"--max-restarts={restarts}"] if processes > 1 else []
        return self.python(*start, "-m", "losspool", *arguments, **environment)


def outcome(process: Process, timeout: float = PATIENCE) -> tuple[int, str]:
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


def _status(pid: int) -> tuple[str, int] | None:
    """State and parent; None for a process that is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return state, int(parent)


def alive(pid: int) -> bool:
    """A zombie is dead: whoever has to bury it is not the subject here."""
    status = _status(pid)
    return status is not None and status[0] not in "ZX"


def children(pid: int) -> list[int]:
    return [each for each in _pids() if (status := _status(each)) and status[1] == pid and status[0] not in "ZX"]


def ranks(process: Process) -> dict[int, int]:
    """Rank -> process number, of what torchrun has started."""
    found = {pid: _variables(pid).get("RANK") for pid in children(process.pid)}
    return {int(rank): pid for pid, rank in found.items() if rank is not None}


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty for one that is gone, or somebody else's."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(each.split("=", 1) for each in content.split("\0") if "=" in each)


def description(out: Path) -> dict:
    return json.loads((out / "run.json").read_text())
