"""The trainer. :meth:`Trainer.run` is the training loop; ``setup.py`` builds data, model, loss and optimizer."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from losspool.segmentation import runs
from losspool.segmentation.base import BrokenFileError, Interrupt, Interrupted, UserError, console, parse_yaml, say
from losspool.segmentation.config import Config, TrainConfig, dump_config
from losspool.segmentation.data import WarnOnce, index_warnings
from losspool.segmentation.models import TrainingOutput
from losspool.segmentation.training.averaging import AveragedWeights
from losspool.segmentation.training.device import Stopwatch, host_waits
from losspool.segmentation.training.loader import Batch, draws_ahead, training_batches
from losspool.segmentation.training.micro_batches import MicroBatches, image_factors
from losspool.segmentation.training.optimization import clip_gradients, rate_factor, set_rates
from losspool.segmentation.training.processes import any_rank, gathered, host_group, join, raise_if_lost
from losspool.segmentation.training.progress import class_line, cores_hint, shown_progress
from losspool.segmentation.training.setup import begin, build_setup, claim_and_read
from losspool.segmentation.training.state import State
from losspool.segmentation.training.step_stats import StepStats, step_stats
from losspool.segmentation.training.unread import Step, UnreadSteps
from losspool.segmentation.training.validation import Previews, Validation


class Trainer:
    """Trains one run from its config; call :meth:`run`."""

    def __init__(self, config: Config, out: Path, *, resume: bool = False) -> None:
        self.folder = runs.RunFolder(out)
        self.fabric = join(config.train.precision, config.train.timeout)
        self.main = self.fabric.global_rank == 0
        self._split = MicroBatches.of(config.train, self.fabric.world_size)
        self._hosts = host_group(self.fabric, config.train.timeout)
        self._stopwatch = Stopwatch(self.fabric.device)
        self._unread = UnreadSteps(age=config.sampling.lag - draws_ahead(config.data.workers))
        self.metrics, self.state = runs.MetricsFile(self.folder.metrics), State()
        self._warn = WarnOnce(silent=not self.main)
        self._lock = runs.RunLock(self.folder.path)
        try:
            config, stored = claim_and_read(self.folder, config, self.fabric, self._hosts, self._lock, resume)
            broken = self._warn if config.data.skip_broken else None
            setup = build_setup(config, self.fabric, self.folder, stored, broken)
            self.config = config = setup.config
            self.data, self.sampler, self.model = setup.data, setup.sampler, setup.model
            self.criterion, self.network, self.optimizer = setup.criterion, setup.network, setup.optimizer
            self.averaged = AveragedWeights(self.model.module, config.train.ema)
            self.validation: Validation | None = None
            if setup.val_data is not None:
                count, goes_on = config.train.previews, stored is not None
                previews = Previews(self.folder.previews, setup.val_data, count, broken, goes_on=goes_on)
                self.validation = Validation(
                    self.fabric, config, self.model, setup.val_data, previews, setup.index, self._warn_all
                )
            self.window = StepStats.zeros(len(self.data.classes))
            if stored is not None:
                self._restore(stored)
            if self.main:  # write nothing before the user's mistakes are found
                if self.model.report is not None:
                    say(str(self.model.report))
                if found := index_warnings(self.data, setup.index):
                    say(f"warning: {'; '.join(found)}")
                begin(self.folder, config, self._lock)
                if resume:
                    self.metrics.cut(self.state.step, self.state.validated)
            names = [info.name for info in self.data.classes]
            self._trackers = runs.Trackers(self.folder, config, names, config.train.trackers if self.main else ())
        except BaseException as error:
            self._lock.release()
            raise_if_lost(error, "before the first step")
            raise

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
                            self._validate_or_save(interrupt)
                            state.seconds = time.perf_counter() - began
                        if state.checkpoint_due(train):
                            self._save()
                except Interrupted:
                    self._save()
                    raise
                except RuntimeError as error:
                    raise_if_lost(error, f"at step {state.step + 1}; resume from the last checkpoint with --resume")
                    raise

    def _step(self, batches: Iterator[Batch], interrupt: Interrupt) -> bool:
        """Update the weights once. Returns whether any rank was asked to stop."""
        config, fabric = self.config.train, self.fabric
        # Dropout and other random layers depend only on the step, so that a resumed run draws the same numbers.
        torch.manual_seed((self.config.seed << 32) + (self.state.step << 12) + fabric.global_rank)
        set_rates(self.optimizer, config, self.state.step)
        mine = StepStats.zeros(len(self.data.classes), fabric.device)
        self._read(self.state.step - self._unread.age)  # the loader draws further crops now
        micro_batches = self._next(batches)
        factors = [1.0] * len(micro_batches)
        if self.criterion.scope == "image":
            factors = image_factors([batch.valid for batch in micro_batches], self._hosts)
        for part, (batch, factor) in enumerate(zip(micro_batches, factors, strict=True)):
            labels = batch.labels.to(fabric.device, non_blocking=True)
            pixels = self.model.spec.preprocessing.apply(batch.images.to(fabric.device, non_blocking=True))
            if config.channels_last:
                pixels = pixels.contiguous(memory_format=torch.channels_last)
            with self._no_sync(part < self._split.number - 1), self._stopwatch.running():
                output, seeds = self.network(pixels), [draw.seed for draw in batch.draws]
                logits, aux = output if isinstance(output, TrainingOutput) else (output, None)
                result = self.criterion(logits, labels, seeds, self.state.step)
                if aux is not None:
                    extra = self.criterion(aux, labels, seeds, self.state.step).loss
                    result.loss = result.loss + self.config.model.aux_weight * extra
                result.loss = result.loss * factor
                fabric.backward(result.loss / self._split.number)
            mine += step_stats(result, labels, len(self.data.classes), batch.skipped)
        with self._stopwatch.running():
            norm = clip_gradients(fabric, self.network, self.optimizer, config)
        draws = [draw for batch in micro_batches for draw in batch.draws]
        broken = [error for batch in micro_batches for error in batch.broken]
        self._unread.add(Step(self.state.step + 1, mine, mine.reduced(fabric).with_norm(norm), draws, broken))
        if not host_waits(fabric.device):  # the weights stay as they are if the loss is not finite
            self._read(self.state.step + 1)
        stop = any_rank(self._hosts, interrupt.signal is not None)
        with self._stopwatch.running():
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.averaged.update(self.state.step + 1)
        self.state.step += 1
        if self.state.log_due(config):
            self._read_all()
        return stop

    def _read(self, until: int) -> None:
        """Take in the statistics of the steps up to ``until`` that are still unread."""
        for step, total in self._unread.read(until):
            if not math.isfinite(total.loss):
                raise self._not_finite(step)
            if total.skipped:  # the total is the same on all ranks, so all of them gather here
                self._warn_all(step.broken)
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
        self.window = StepStats.zeros(len(self.data.classes))
        return entry

    def _validate_or_save(self, interrupt: Interrupt) -> None:
        """Validate, and save a checkpoint if that fails: the steps before it are good."""
        self._read_all()  # do not spend a validation on weights that are not finite
        alone = self.fabric.world_size == 1
        if not alone:
            self._save()  # first: torchrun gives ranks 30 seconds to stop, and a validation may take longer
        try:
            self._validate(self._watch(interrupt))
        except Interrupted:
            raise
        except Exception:
            if alone:
                self._save()
            raise

    def _validate(self, watch: Callable[[], None]) -> None:
        began, state = time.perf_counter(), self.state
        assert self.validation is not None  # else none is due
        with self.averaged.in_network():
            summary = self.validation(state.step, watch)
        took = round(time.perf_counter() - began, 3)
        self._write({"step": state.step, "split": "val", **summary, "time": {"validation": took}})
        self._trackers.images(state.step, self.validation.previews.files(state.step))
        if state.best is None or summary["miou"] > state.best["miou"]:
            state.best = {"step": state.step, "miou": summary["miou"]}
        state.validated = state.step
        if self.main:
            best = f"best {state.best['miou']:.4f} at step {state.best['step']}"
            say(f"step {state.step}: val mIoU {summary['miou']:.4f}, {best}")
            if console.is_terminal:
                say(class_line([info.name for info in self.data.classes], summary["iou"]))

    def _save(self) -> None:
        """Write a checkpoint of this step. All ranks hold the same state; rank 0 writes it.

        If the loss of a step was not finite, raise the error instead: the weights are spoiled since.
        """
        self._read_all()
        if self.main:
            self.metrics.sync()
            content = {
                **self.state.to_dict(),
                "processes": self.fabric.world_size,
                "model": self.model.module.state_dict(),
                "averaged": self.averaged.values,
                "spec": self.model.spec.to_dict(),
                "classes": [info.to_dict() for info in self.data.classes],
                "config": dump_config(self.config),
                "optimizer": self.optimizer.state_dict(),
                "precision": self.fabric.strategy.precision.state_dict(),
                "running": self.sampler.running.state_dict(),
                "window": self.window.values.cpu(),
            }
            runs.write_checkpoint(self.folder.checkpoints, self.state.step, content)
            best = [self.state.best["step"]] if self.state.best else []
            keep = (*self.config.train.keep_steps, *best)
            runs.prune(self.folder.checkpoints, step=self.state.step, last=self.config.train.keep_last, keep=keep)
        self.fabric.barrier()

    def _restore(self, stored: dict[str, Any]) -> None:
        with runs.fitting(self.folder.checkpoints, "the run"):
            self.model.module.load_state_dict(stored["model"])
            self.averaged.load(stored.get("averaged", {}))
            self.optimizer.load_state_dict(stored["optimizer"])
            self.fabric.strategy.precision.load_state_dict(stored["precision"])
            self.sampler.running.load_state_dict(stored["running"])
            self.window.values[: len(stored["window"])] = stored["window"]
            self.state = State(*(stored.get(each.name, each.default) for each in fields(State)))
            self.state.check(self.config.train.steps)
            known = parse_yaml(stored["config"])["train"]
            kept = {name: known[name] for name in ("steps", "batch", "accumulate")}
            before = replace(self.config.train, **kept, global_batch=known.get("global_batch"))
            split = MicroBatches.of(before, int(stored["processes"]))
        self._split.check_kept(split, self.config.train, self.criterion.scope, self.folder.path)
        if split.processes != self._split.processes:
            change = [self.state.step, split.processes, self._split.processes]
            self.state.regrouped = [*(self.state.regrouped or []), change]
        if self.main:
            say(f"resumed at step {self.state.step} of {self.config.train.steps}")
        if before.steps < self.config.train.steps:
            self._raise_steps(before)

    def _raise_steps(self, before: TrainConfig) -> None:
        """Note that the run has more steps now, and what this does to the learning rate."""
        step, train = self.state.step, self.config.train
        self.state.raised = [*(self.state.raised or []), [step, before.steps, train.steps]]
        rates = [train.lr * rate_factor(each, step) for each in (before, train)]
        if self.main:
            say(
                f"train.steps is raised from {before.steps} to {train.steps}: from here on the rate follows the "
                f"{train.schedule} schedule of {train.steps} steps, at {rates[1]:.3g} instead of {rates[0]:.3g}"
            )

    def _next(self, batches: Iterator[Batch]) -> list[Batch]:
        """Load all micro-batches of a step before computing any. If loading fails, save the steps before."""
        try:
            return [next(batches) for _ in range(self._split.number)]
        except UserError:
            if self.state.step and self.fabric.world_size == 1:  # saving needs all ranks, and the others do not know
                self._save()
            raise

    def _watch(self, interrupt: Interrupt) -> Callable[[], None]:
        """A check that stops slow work after a signal. With several ranks it does nothing: they would need to agree."""
        return interrupt.check if self.fabric.world_size == 1 else lambda: None

    def _warn_all(self, broken: list[BrokenFileError]) -> list[BrokenFileError]:
        """Warn about the broken files that any rank found, and return them."""
        everyone = [error for part in gathered(self.fabric, broken) for error in part]
        for error in everyone:
            self._warn(error)
        return everyone

    def _not_finite(self, step: Step) -> UserError:
        images = [self.data.names[draw.image] for draw in step.draws]
        found = gathered(self.fabric, [] if math.isfinite(step.mine.loss) else images)
        return UserError(
            f"the loss is not finite at step {step.number}, on the images "
            f"{', '.join(name for names in found for name in names)}; "
            f"try a lower train.lr than {self.config.train.lr:g}"
        )

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

        def end() -> dict[str, Any]:
            skipped = {"skipped": self.state.skipped} if self.config.data.skip_broken else {}
            changes = {name: found for name in ("raised", "regrouped") if (found := getattr(self.state, name))}
            return {"step": self.state.step, "best": self.state.best, **skipped, **changes}

        return runs.described(self.folder.description, about, end)

    def _no_sync(self, enabled: bool) -> Any:
        """Reduce gradients across ranks only with the last micro-batch."""
        several = self.fabric.world_size > 1
        return self.fabric.no_backward_sync(self.network, enabled=enabled) if several else nullcontext()
