"""``losspool lab run`` on small grids, in processes of its own."""

import time
from pathlib import Path

import yaml

from real_runs import ForkedProcess, Processes, forked_python, outcome
from runs_for_tests import write_recipe

STEPS = 200


def write_grid(folder: Path, runs, steps: int = STEPS, **content) -> Path:
    half = steps // 2
    write_recipe(
        folder, steps=steps, log_every=2, validate_every=half, checkpoint_every=half // 2, keep_steps=[half, steps]
    )
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump({"recipe": "tiny.yaml", "runs": runs, "baseline": "base", **content}))
    return path


class Runner:
    """``losspool lab run`` in a process of its own, which starts those of the runs: new interpreters with Ray alone."""

    def __init__(self, processes: Processes, grid: Path, out: Path, *options, **environment) -> None:
        self._errors = grid.with_name(f"{out.name}.errors")
        words = ("lab", "run", grid, "--out", out, "--threads", "1", *options)
        if "ray" not in options:
            environment |= forked_python()
        with open(self._errors, "w") as errors:
            self.process: ForkedProcess = processes.launch(*words, errors=errors, COLUMNS="120", **environment)

    def outcome(self) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        code, output = outcome(self.process, 300)
        return code, output, self._errors.read_text()


def run(grid: Path, out: Path, *options, **environment) -> tuple[int, str, str]:
    with Processes() as processes:
        return Runner(processes, grid, out, *options, **environment).outcome()


def run_in_peace(grid: Path) -> tuple[Path, str, str]:
    """The folder of a finished grid, and what its runner printed."""
    out = grid.parent / "undisturbed"
    code, output, error = run(grid, out, "--jobs", "2")
    assert code == 0, error
    return out, output, error


def processes_of(out: Path) -> list[str]:
    """The command lines of all processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(out) in words:
            found.append(words)
    return found


def wait_for(condition, seconds=300.0, every=0.01):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(every)


def written(out, run="*"):
    """Bytes of the metrics of all runs, or of one."""
    return sum(path.stat().st_size for path in (out / "runs").glob(f"{run}/metrics.jsonl"))
