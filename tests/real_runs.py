"""Trainings as processes of their own: started as a user starts them, with their workers found through /proc."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PATHS = [str(HERE.parent / "src"), str(HERE)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1", "COLUMNS": "300"}


def launch(*arguments, processes: int = 1) -> subprocess.Popen:
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [*start, "-m", "losspool", *map(str, arguments)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcome(process: subprocess.Popen, timeout: float = 60) -> tuple[int, str]:
    """Exit code and all that was said."""
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, output


def until(condition, seconds: float = 60.0) -> bool:
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
    found = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [each for each in found if (status := _status(each)) and status[1] == pid and status[0] not in "ZX"]


def description(out: Path) -> dict:
    return json.loads((out / "run.json").read_text())
