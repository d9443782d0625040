"""The trainer. :meth:`Trainer.run` is the training loop; ``setup.py`` builds data, model, loss and optimizer."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from losspool.segmentation import runs
from losspool.segmentation.base import Interrupt, Interrupted, UserError, say
from losspool.segmentation.config import Config, load_config
from losspool.segmentation.training.claim import begin
from losspool.segmentation.training.loader import Batch, draws_ahead, training_batches
from losspool.segmentation.training.optimization import clip_gradients, set_rates
from losspool.segmentation.training.processes import any_rank, host_group, join, joined, raise_if_lost
from losspool.segmentation.training.progress import cores_hint, resume_command, say_scores, shown_progress
from losspool.segmentation.training.setup import set_up
from losspool.segmentation.training.state import checkpoint_content, restored
from losspool.segmentation.training.step_stats import Step, StepStats, Stopwatch, UnreadSteps, host_waits, step_stats


class Trainer:
    """Trains one run from its config; call :meth:`run`."""

    def __init__(self, config: Config, out: Path, *, resume: bool = False) -> None:
        self.folder = runs.RunFolder(out)
        self.fabric = join(config.train.precision, config.train.timeout)
        self.main = self.fabric.global_rank == 0
        self.metrics = runs.MetricsFile(self.folder.metrics)
        self._lock = runs.RunLock(self.folder.path)
        try:
            self._hosts = host_group(self.fabric, config.train.timeout)
            setup, stored = set_up(self.folder, config, self.fabric, self._hosts, self._lock, resume)
            self._setup, self.config, self.data, self.sampler = setup, setup.config, setup.data, setup.sampler
            self.model, self.criterion, self.network = setup.model, setup.criterion, setup.network
            self.optimizer, self.averaged, self.validation = setup.optimizer, setup.averaged, setup.validation
            self.state, self.window = restored(setup, stored)
            if self.main:  # write nothing before the user's mistakes are found
                for notice in setup.notices:
                    say(notice)
                begin(self.folder, self.config, self._lock)
                if resume:
                    self.metrics.cut(self.state.step, self.state.validated)
            self._classes = [info.name for info in self.data.classes]
            wanted = self.config.train.trackers if self.main else ()
            self._trackers = runs.Trackers(self.folder, self.config, self._classes, wanted)
        except BaseException as error:
            self._lock.release()
            raise_if_lost(error, config.train.timeout, "before the first step")
            raise
        self._unread = UnreadSteps(age=self.config.sampling.lag - draws_ahead(self.config.data.workers))
        self._stopwatch = Stopwatch(self.fabric.device)

    def run(self) -> None:
        """Train to the end. If a signal stops the run early, save its state and raise :class:`Interrupted`."""
        state, train = self.state, self.config.train
        with self._lock, self._trackers:
            if state.complete(self.config) and runs.status(self.folder.description) == "finished":
                return
            alone_on_cpu = self.fabric.world_size == 1 and self.fabric.device.type == "cpu"
            if alone_on_cpu and (hint := cores_hint(torch.get_num_threads())):
                say(hint)
            with (
                Interrupt() as interrupt,
                self._run_json(),
                shown_progress(train.steps, state.step, self.main) as show,
                closing(training_batches(self.config, self.fabric, self.data, self.sampler, state.step)) as batches,
                self._lost_ranks_reported(),
            ):
                if self.main and self.validation is not None:
                    self.validation.previews.write_sources(self._watch(interrupt))
                began = time.perf_counter() - state.seconds
                try:
                    while not state.complete(self.config):
                        if not state.validation_due(self.config):
                            stop = self._step(batches, interrupt)
                            state.seconds = time.perf_counter() - began
                            if state.log_due(train):
                                show(self._log())
                            if stop:
                                raise Interrupted(interrupt.signal or signal.SIGTERM)  # None if another rank got it
                        if state.validation_due(self.config):
                            self._read_all()  # do not spend a validation on weights that are not finite
                            if self.fabric.world_size > 1:
                                self._save()  # torchrun gives ranks 30 seconds to stop; a validation may take longer
                            with self._saved_if_it_fails(Exception):
                                self._validate(self._watch(interrupt))
                            state.seconds = time.perf_counter() - began
                        if state.checkpoint_due(train):
                            self._save()
                except Interrupted:
                    self._save()
                    raise

    def _step(self, batches: Iterator[Batch], interrupt: Interrupt) -> bool:
        """Update the weights once. Returns whether any rank was asked to stop."""
        train, fabric, split, done = self.config.train, self.fabric, self._setup.split, self.state.step
        # Dropout and other random layers depend only on the step, so that a resumed run draws the same numbers.
        torch.manual_seed((self.config.seed << 32) + (done << 12) + fabric.global_rank)
        set_rates(self.optimizer, train, done)
        self._read(done - self._unread.age)  # the loader draws further crops now
        with self._saved_if_it_fails(UserError):
            micro_batches = [next(batches) for _ in range(split.number)]
        mine = StepStats.zeros(len(self._classes), fabric.device)
        factors = split.loss_factors([batch.valid for batch in micro_batches], self.criterion.scope, self._hosts)
        for part, (batch, factor) in enumerate(zip(micro_batches, factors, strict=True), start=1):
            labels = batch.labels.to(fabric.device, non_blocking=True)
            pixels = self.model.spec.preprocessing.apply(batch.images.to(fabric.device, non_blocking=True))
            if train.channels_last:
                pixels = pixels.contiguous(memory_format=torch.channels_last)
            with self._no_sync(part < split.number), self._stopwatch.running():
                result = self.criterion(self.network(pixels), labels, [draw.seed for draw in batch.draws], done)
                result.loss = result.loss * factor
                fabric.backward(result.loss / split.number)
            mine += step_stats(result, labels, len(self._classes), batch.skipped)
        with self._stopwatch.running():
            norm = clip_gradients(fabric, self.network, self.optimizer, train)
        draws = [draw for batch in micro_batches for draw in batch.draws]
        broken = [error for batch in micro_batches for error in batch.broken]
        self._unread.add(Step(done + 1, mine, mine.reduced(fabric).with_norm(norm), draws, broken))
        if not host_waits(fabric.device):  # the weights stay as they are if the loss is not finite
            self._read(done + 1)
        stop = any_rank(self._hosts, interrupt.signal is not None)
        with self._stopwatch.running():
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.averaged.update(done + 1)
        self.state.step += 1
        if self.state.log_due(train):
            self._read_all()
        return stop

    def _read(self, until: int) -> None:
        """Take in the statistics of the steps up to ``until`` that are still unread."""
        for step, total in self._unread.read(until):
            if not math.isfinite(total.loss):
                raise step.not_finite(self.fabric, self.data.names, self.config.train.lr)
            if total.skipped:  # the total is the same on all ranks, so all of them gather here
                self._setup.warn(*joined(self.fabric, step.broken))
            self.sampler.running.observe(total.counts)
            self.window += total
            self.state.skipped += total.skipped

    def _read_all(self) -> None:
        """Wait for the device, and take in the statistics and the time of all steps so far."""
        self._read(self.state.step)
        self.state.compute += self._stopwatch.take()

    def _log(self) -> dict[str, Any]:
        """Write a line of metrics for the steps since the last one."""
        running = self.sampler.running.after(self.state.step)
        entry = {
            "step": self.state.step,
            "split": "train",
            **self.window.summary(),
            "lr": self.optimizer.param_groups[0]["lr"],
            **self.config.loss.logged(self.state.step - 1),
            "miou": float(running[self.sampler.present].mean()),
            "iou": running.tolist(),
            "probabilities": self.sampler.probabilities(running).tolist(),
            **({"skipped": self.window.skipped} if self.config.data.skip_broken else {}),
            "time": {"seconds": round(self.state.seconds, 3), "compute": round(self.state.compute, 3)},
        }
        self._write(entry)
        self.window = StepStats.zeros(len(self._classes))
        return entry

    def _validate(self, watch: Callable[[], None]) -> None:
        began, state = time.perf_counter(), self.state
        assert self.validation is not None  # else none is due
        with self.averaged.in_network():
            summary = self.validation(state.step, watch)
        took = round(time.perf_counter() - began, 3)
        self._write({"step": state.step, "split": "val", **summary, "time": {"validation": took}})
        self._trackers.images(state.step, self.validation.previews.files(state.step))
        best = state.validated_with(summary["miou"])
        if self.main:
            say_scores(state.step, summary, best, self._classes)

    def _save(self) -> None:
        """Write a checkpoint of this step. All ranks hold the same state; rank 0 writes it.

        If the loss of a step was not finite, raise the error instead: the weights are no longer valid.
        """
        self._read_all()
        if self.main:
            state, train, folder = self.state, self.config.train, self.folder.checkpoints
            self.metrics.sync()
            runs.write_checkpoint(folder, state.step, checkpoint_content(self._setup, state, self.window))
            best = [state.best["step"]] if state.best else []
            runs.prune(folder, step=state.step, last=train.keep_last, keep=(*train.keep_steps, *best))
        self.fabric.barrier()

    @contextmanager
    def _lost_ranks_reported(self) -> Iterator[None]:
        """Around the save after a signal too: a preemption may take another rank away first."""
        try:
            yield
        except RuntimeError as error:
            when = f"after step {self.state.step}; resume from the last checkpoint with --resume"
            raise_if_lost(error, self.config.train.timeout, when)
            raise

    @contextmanager
    def _saved_if_it_fails(self, kind: type[Exception]) -> Iterator[None]:
        """Save the steps so far if a block fails that does not change them: loading, or a validation."""
        try:
            yield
        except Interrupted:
            raise  # the loop saves
        except kind:
            if self.state.step and self.fabric.world_size == 1:  # saving needs all ranks, and the others do not know
                self._save()
            raise

    def _watch(self, interrupt: Interrupt) -> Callable[[], None]:
        """A check that stops slow work after a signal. With several ranks it does nothing: they would need to agree."""
        return interrupt.check if self.fabric.world_size == 1 else lambda: None

    def _write(self, entry: dict[str, Any]) -> None:
        if self.main:
            self.metrics.append(entry)
            self._trackers.write(entry)

    def _run_json(self) -> AbstractContextManager[None]:
        """On rank 0, write run.json: the run's environment, and how it ended."""
        if not self.main:
            return nullcontext()
        about = runs.describe_run(self.config.seed, self.fabric.world_size)
        about["classes"] = [info.to_dict() for info in self.data.classes]
        return runs.described(self.folder.description, about, lambda: self.state.outcome(self.config))

    def _no_sync(self, enabled: bool) -> Any:
        """Reduce gradients across ranks only with the last micro-batch."""
        several = self.fabric.world_size > 1
        return self.fabric.no_backward_sync(self.network, enabled=enabled) if several else nullcontext()


def train_run(recipe: str, overrides: Sequence[str], out: Path | None, *, resume: bool, threads: int | None) -> None:
    """``losspool train``. If a signal stops the run, say how to resume it and raise :class:`Interrupted`."""
    config = load_config(recipe, overrides)
    if threads is not None:
        torch.set_num_threads(threads)
    trainer = Trainer(config, out or runs.default_folder(config, resume), resume=resume)
    try:
        trainer.run()
    except Interrupted:
        if trainer.main:
            command = resume_command(recipe, overrides, trainer.folder.path, threads, trainer.fabric.world_size)
            say(f"stopped at step {trainer.state.step}; resume with: {command}")
        raise
    if trainer.main:
        say(f"finished: {trainer.folder.path}")
