"""A disk that can be filled."""

import os
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A file system of a megabyte, and a file in it that takes what room there is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def leave(self, size: int) -> None:
        """Room for ``size`` bytes and no more."""
        room = os.statvfs(self.path)
        taken = room.f_bavail * room.f_frsize - size
        (self.path / "filler").write_bytes(b"\0" * taken)

    def empty(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here ({mounted.stderr.strip()})")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)
