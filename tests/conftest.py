"""The command line, as a test meets it: in this process, and in processes of its own."""

import functools
import gc
import os
import signal
import threading
from pathlib import Path

import pytest

from real_runs import Processes, preload

# Heavy imports are inside the fixtures: pytest-xdist starts its workers only after reading this file.

# A test and the processes that it starts must add up in the same order, and two tests at a time share the cores.
os.environ["OMP_NUM_THREADS"] = "1"
# A pool of compiling processes takes longer to start than the tests' small graphs take to compile.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


HERE = Path(__file__).parent
LONGEST = {
    HERE / "lab/grids/test_runner.py",
    HERE / "faults/test_rank_dies.py",
    HERE / "results/test_publish.py",
    HERE / "results/test_rerun.py",
    HERE / "segmentation/training/test_networks_train.py",
    HERE / "segmentation/prediction/test_export.py",
    HERE / "test_compile.py",
}
"""Files with a test that takes ten seconds or more."""
CLUSTERS = ["lost_node", "elastic", "slurm", "collectives", "ray", "hosts"]
"""Three processes that take them in this order, file by file, end at about the same time."""
WAITING = {"launch", "torchrun", "undisturbed"}
"""Fixtures of tests that start processes."""


def pytest_sessionstart(session):
    """Tests, and the processes they start, react to signals that nohup or a script's background made ignored.

    Under pytest-xdist, preloaded.py starts while the tests are collected.
    """
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if hasattr(session.config, "workerinput"):
        threading.Thread(target=preload, daemon=True).start()


def pytest_collection_modifyitems(items):
    """Spread the files that start processes over the run: their tests wait, and others can use the time.

    The longest come first: nothing should be left to wait for at the end.
    """
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waits = {path: any(WAITING & set(item.fixturenames) for item in tests) for path, tests in files.items()}
    places = {}
    for kind in (False, True):
        some = [path for path in files if waits[path] is kind]
        places |= {path: (index + 0.5) / len(some) for index, path in enumerate(some)}
    places |= dict.fromkeys(LONGEST, 0.0)
    places |= {HERE / f"clusters/test_{name}.py": place for place, name in enumerate(CLUSTERS)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish():
    """What was imported stays: no collection of garbage, here or in a forked process, has to look through it."""
    gc.collect()
    gc.freeze()


@functools.cache
def _built_once():
    """Typer builds the whole tree of commands for every call, which takes longer than what most tests call."""
    from typer.main import get_command

    return functools.cache(get_command)


@pytest.fixture
def command(capsys, monkeypatch):
    """Exit code, standard output and standard error of the real entry point."""
    from losspool import cli

    def run(*arguments, columns=160):
        monkeypatch.setattr("sys.argv", ["losspool", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("typer.main.get_command", _built_once())
        # A test of dying workers may have left a thread in this process, which must not end with the command.
        monkeypatch.setattr("losspool.segmentation.base.process._left_behind", [])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def launch():
    """The command in a process of its own; nothing of it outlives the test, however that ends."""
    with Processes() as processes:
        yield processes.launch


@pytest.fixture
def start():
    """Starts the runner of a grid; nothing of it outlives the test."""
    from grid_runs import Runner

    with Processes() as processes:
        yield lambda *arguments, **environment: Runner(processes, *arguments, **environment)


@pytest.fixture
def torchrun():
    """The command as two ranks under torchrun; nothing of them outlives the test."""
    with Processes() as processes:
        yield processes.torchrun
