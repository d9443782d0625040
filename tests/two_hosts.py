"""Two hosts on one machine: network namespaces joined by a cable that can be cut, each with a disk of its own."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from real_runs import ForkedProcess, Processes, kill

PORT = 29400
QUICK = ("keep_alive_interval=2", "keep_alive_max_attempt=3", "last_call_timeout=1")
"""A torchrun counts as lost after 6 seconds without a sign of life, and the others wait a second for one more to join.
torchrun's own values are 15 and 30."""


def reason_to_skip() -> str | None:
    """Why there can be no two hosts here; None if there can."""
    if os.geteuid():
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "needs the command ip (Debian: apt install iproute2)"
    name = f"losspool-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespace can be made here ({made.stderr.strip()})"
    _ip("netns", "del", name)
    return None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class TwoHosts:
    """Host 0 is where the hosts meet. What they see as ``folder`` is ``disks[host]``; ``share`` makes it one disk.

    If ``quick``, ranks are forks instead of new interpreters, and a lost host is noticed sooner. If ``by_file``, the
    hosts meet in a file on the shared disk instead of on host 0.
    """

    def __init__(self, folder: Path, share: bool = True, quick: bool = False, by_file: bool = False) -> None:
        self._quick, self._by_file = quick, by_file
        self.folder = folder / "disk"
        self.names = [f"losspool-{os.getpid()}-{host}" for host in (0, 1)]
        self.disks = [folder / f"disk-{0 if share else host}" for host in (0, 1)]
        self.processes = Processes()
        for path in (self.folder, *self.disks):
            path.mkdir(exist_ok=True)
        self._hosts = folder / "hosts"
        lines = [f"{self.address(host)} {name}" for host, name in enumerate(self.names)]
        self._hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def __enter__(self) -> "TwoHosts":
        with contextlib.ExitStack() as undo:  # also what a failure here leaves half done
            for name in self.names:
                _ip("netns", "add", name)
                undo.callback(_ip, "netns", "del", name)
            words = ("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.names[1])
            _ip("-n", self.names[0], *words)
            for host, name in enumerate(self.names):
                _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "cable")
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", "cable", "up")
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._undo:
            self.processes.__exit__()

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def cut(self) -> None:
        _ip("-n", self.names[0], "link", "set", "cable", "down")

    def mend(self) -> None:
        _ip("-n", self.names[0], "link", "set", "cable", "up")

    def limit_retries(self, number: int) -> None:
        """Set ``net.ipv4.tcp_retries2`` on both hosts: TCP gives up after this many retries."""
        for name in self.names:
            _ip("netns", "exec", name, "sh", "-c", f"echo {number} > /proc/sys/net/ipv4/tcp_retries2")

    def train(self, host: int, *arguments: object, restarts: int = 0, nodes: str = "2") -> ForkedProcess:
        """``torchrun`` on a host, with one rank; ``nodes`` is its ``--nnodes``."""
        endpoint = self.folder / "rendezvous" if self._by_file else f"{self.address(0)}:{PORT}"
        settings = (f"store_type={'file' if self._by_file else 'tcp'}", *(QUICK if self._quick else ()))
        options = (
            f"--nnodes={nodes}",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            "--rdzv-id=test",
            f"--rdzv-endpoint={endpoint}",
            f"--rdzv-conf={','.join(settings)}",
            f"--local-addr={self.address(host)}",
            f"--max-restarts={restarts}",
            "--monitor-interval=0.2",
        )
        torchrun = "forked_torchrun" if self._quick else "torch.distributed.run"
        where = ("on_host", self.names[host], self._hosts, self.disks[host], self.folder, torchrun)
        command = (*where, *options, "-m", "losspool", "train", *arguments)
        # Without the second, a host that comes back finds no address to meet the other at (pytorch issue 135712).
        return self.processes.fork(*command, GLOO_SOCKET_IFNAME="cable", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")

    def kill(self, process: ForkedProcess, silently: bool = False) -> None:
        """Kill all processes of a host with -9. If ``silently``, nothing reaches the other host, as in a power cut."""
        if silently:
            self.cut()
        for pid in process.family():
            kill(pid)
        process.wait()
        if silently:
            self.mend()
