"""The life cycle of a grid's job on Slurm, with submitit's local executor in Slurm's place.

``tests/scripts/slurm_faults.py`` does the same on a real Slurm.
"""

import os
import re
import signal
import threading

import pytest

from real_runs import PATHS, children, until
from runs_for_tests import metrics, train, write_recipe


def local_slurm(**options):
    """Jobs are processes of this machine, which submitit starts again when they are requeued."""
    import submitit  # not above: every process of the tests reads this file

    from losspool.lab.grids.slurm import SlurmExecutor
    from losspool.lab.grids.tasks import Options

    class LocalSlurm(SlurmExecutor):
        def _submitter(self, folder, count):
            executor = submitit.LocalExecutor(folder)
            executor.update_parameters(timeout_min=10, stderr_to_stdout=True)
            return executor

        def _queue(self):
            return {job.job_id for job in self._jobs.values() if not job.done()}

        def start(self, tasks):
            super().start(tasks)
            (job,) = self._jobs.values()
            threading.Thread(target=preempt, args=(int(job.job_id), tasks[0].folder / "out" / "runs")).start()

    return LocalSlurm(Options(**options))


def preempt(controller, runs):
    """Once the run trains, send the signal to every process of the job, as Slurm does."""
    assert until(lambda: any(path.stat().st_size for path in runs.glob("*/metrics.jsonl")))
    (process,) = children(controller)
    (training,) = children(process)
    for pid in (training, process):
        os.kill(pid, signal.SIGUSR2)


def test_a_preempted_run_saves_is_requeued_and_ends_as_if_nothing_had_happened(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    from losspool.lab.grids import read_grid
    from losspool.lab.grids.runner import run_jobs

    recipe = write_recipe(tmp_path, steps=150, log_every=2, validate_every=150, checkpoint_every=150)
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"recipe: {recipe.name}\nruns: [{{method: lmp}}]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(PATHS))
    jobs = read_grid(grid).jobs(tmp_path / "out" / "runs")
    result = run_jobs(jobs, local_slurm(threads=1, time="10"), threads=1, logs=tmp_path / "out" / "logs")
    assert result.failed == {}
    log = (tmp_path / "out" / "logs" / "lmp-s0.log").read_text()
    (step,) = re.findall(r"resumed at step (\d+)", log)  # there is no other checkpoint than the one at the signal
    assert 0 < int(step) < 150
    train(recipe, tmp_path / "undisturbed", "method=lmp")
    assert metrics(tmp_path / "out" / "runs" / "lmp-s0") == metrics(tmp_path / "undisturbed")
