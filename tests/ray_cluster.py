"""A Ray cluster of two nodes on this machine, each with one CPU and two GPUs that only exist by name."""

import secrets
import socket
import tempfile
from pathlib import Path

from real_runs import Process, Processes, kill, until

QUICK = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}
"""A lost node is noticed after seconds. Ray's own values are for networks."""
NOT_NICE = {"RAY_worker_niceness": "0"}
"""Ray's own value is 15: whatever else runs on the machine, such as another test, would hold up the trainings."""
OPTIONS = ["--num-cpus", "1", "--num-gpus", "2", "--node-ip-address", "127.0.0.1", "--block"]
# What neither the nodes nor the tests need: each is a process that imports Ray for seconds.
OPTIONS += ["--include-log-monitor", "false"]
HEAD_OPTIONS = ["--include-dashboard", "false", "--disable-usage-stats", "--no-monitor"]
# Ray's own ports are fixed, for firewalls. These nodes share a machine, with each other and with other clusters.
OPTIONS += ["--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"]


def without_client_server(parameters, head: bool) -> None:
    """Ray calls this before it starts a node: there is no option for it. The server has the port 10001."""
    parameters.ray_client_server_port = None


class RayCluster:
    """Started with ``ray start``, as a user does. Nothing of it outlives the block.

    To the second node, the folder ``hidden`` is empty, which takes root.
    """

    def __init__(self, quick: bool = True, hidden: Path | None = None) -> None:
        self._options = {**NOT_NICE, **(QUICK if quick else {})}
        self._hidden = hidden

    def __enter__(self) -> "RayCluster":
        self._processes = Processes()
        # Its own token: Ray would take, or make, the user's, and not ask for it everywhere.
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # short: it holds sockets
        try:
            self.head = self._start(
                "--head", "--port", self.address.split(":")[1], "--temp-dir", self._folder.name, gpus="0,1"
            )
            assert until(self._answers)
            self.second = self.join(gpus="2,3", hidden=self._hidden)
        except BaseException:  # the block's end will not be reached
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception) -> None:
        self._processes.__exit__(*exception)
        self._folder.cleanup()

    def join(self, gpus: str, hidden: Path | None = None) -> Process:
        """Another node, which sees the GPUs of these numbers."""
        node = self._start("--address", self.address, gpus=gpus, hidden=hidden)
        output = ""
        while "Ray runtime started" not in output:
            output += (line := node.stdout.readline())
            assert line, output
        return node

    def lose(self, node: Process) -> None:
        """Kill all of a node's processes, with the trainings on it."""
        while family := node.family():
            for pid in family:
                kill(pid)

    def _start(self, *options: str, gpus: str, hidden: Path | None = None) -> Process:
        words = ["-m", "ray.scripts.scripts", "start", *options, *OPTIONS]
        words += HEAD_OPTIONS if "--head" in options else []
        if hidden is not None:
            words = [Path(__file__).parent / "scripts" / "hide_folder.py", hidden, *words]
        environment = {"CUDA_VISIBLE_DEVICES": gpus, "RAY_START_HOOK": f"{__name__}.without_client_server"}
        return self._processes.python(*words, **environment, **self._options, **self.environment)

    def _answers(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", int(self.address.split(":")[1]))) == 0
