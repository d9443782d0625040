"""The trainer: one loop. Loss, sampler, model and data are arguments of it, by way of the config."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from losspool.segmentation.base import BrokenFileError, Interrupt, Interrupted, UserError, progress_bar, say, sweep
from losspool.segmentation.config import Config, dump_config
from losspool.segmentation.data import Augmentation, WarnOnce, class_index
from losspool.segmentation.losses import Criterion, loss_named
from losspool.segmentation.runs import (
    MetricsFile,
    RunFolder,
    TensorBoard,
    check_folder,
    check_unsaved,
    claimed,
    describe_run,
    described,
    fitting,
    newest_checkpoint,
    prune,
    status,
    write_checkpoint,
    write_config,
)
from losspool.segmentation.training.loader import Batch, check_prefetch, crop_loader
from losspool.segmentation.training.previews import Previews
from losspool.segmentation.training.processes import gathered, join
from losspool.segmentation.training.sampling import CropSampler, DrawStream
from losspool.segmentation.training.starting import fresh_model, stored_model
from losspool.segmentation.training.state import State
from losspool.segmentation.training.step_stats import Observation, observe
from losspool.segmentation.training.validation import Validation


class Trainer:
    """Everything that a run needs, built from its config; :meth:`run` is the loop."""

    def __init__(self, config: Config, out: Path, *, resume: bool = False) -> None:
        self.config, self.folder = config, RunFolder(out)
        self.fabric = fabric = join(config.train.precision)
        self.main = fabric.global_rank == 0
        self._held = ExitStack()
        try:
            begun = self.folder.config.exists()
            self._build(self._stored(begun, resume))
            if self.main:  # only now, when the user's mistakes are found, is anything written
                self._begin(begun, resume)
            self._board = TensorBoard(self.folder.path) if self.main and config.train.tensorboard else None
        except BaseException:
            self._held.close()  # somebody else may have the folder then
            raise

    def _stored(self, begun: bool, resume: bool) -> dict[str, Any] | None:
        """The checkpoint to go on from; an error where the folder does not fit the config."""
        config, fabric = self.config, self.fabric
        if self.main and begun and resume:  # first of all: what is read below must be the last that anyone wrote
            self._held.enter_context(claimed(self.folder.path))
        fabric.barrier()
        check_folder(self.folder, config, resume)
        stored = newest_checkpoint(self.folder.checkpoints) if resume else None
        seen = gathered(fabric, stored and stored.get("step"))
        if len(set(map(repr, seen))) > 1:
            raise UserError(f"{self.folder.checkpoints}: the ranks see other checkpoints there, of the steps {seen}")
        if begun and stored is None:
            check_unsaved(self.folder, config.train.checkpoint_every)
        return stored

    def _build(self, stored: dict[str, Any] | None) -> None:
        config, fabric = self.config, self.fabric
        self.data, val_data = config.data.open(config.data.train), config.data.open(config.data.val)
        self._tell_broken = WarnOnce(silent=not self.main)
        broken = self._tell_broken if config.data.skip_broken else None
        with fabric.rank_zero_first(local=True):  # one builds it, the others find it in the cache
            index = class_index(self.data, Path(config.data.cache) if config.data.cache else None, broken)
        self.sampler = CropSampler(index, config.sampling, config.seed)
        if stored is None:
            self.model = fresh_model(config, self.data)
        else:
            self.model = stored_model(self.folder, config, self.data, stored)
        if self.main and self.model.report is not None:
            say(str(self.model.report))
        if self.model.spec.by_path or config.train.batch == 1:
            self.model.try_on(*config.data.crop, config.train.batch)
        rule = loss_named(config.loss.name).class_weights
        weights = None if rule is None else rule(index)
        self.criterion = Criterion(config.loss, weights, self.model.spec.output_stride).to(fabric.device)
        self.previews = Previews(self.folder.previews, val_data, config.train.previews, broken)
        self.validation = Validation(fabric, config, self.model, val_data, self.previews, weights, self._name)
        self.metrics = MetricsFile(self.folder.metrics)

        module = self.model.module
        if config.train.channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        optimizer = torch.optim.SGD(
            self.model.parameter_groups(config.train.lr, config.train.head_factor),
            lr=config.train.lr,
            momentum=config.train.momentum,
            weight_decay=config.train.weight_decay,
        )
        self._first_rates = [group["lr"] for group in optimizer.param_groups]
        network = cast(nn.Module, torch.compile(module)) if config.train.compile else module
        self.network, self.optimizer = fabric.setup(network, optimizer)
        self.state, self.window = State(), self._no_window()
        if stored is not None:
            self._restore(stored)
        check_prefetch(config.data.workers, config.sampling.lag)

    def _begin(self, begun: bool, resume: bool) -> None:
        """Take the folder, and leave in it what belongs to the steps before this one alone."""
        if not (begun and resume):
            self._held.enter_context(claimed(self.folder.path))
            if self.folder.config.exists():
                raise UserError(f"{self.folder.path}: another process has just begun this run")
        sweep(self.folder.path)
        sweep(self.folder.previews)
        write_config(self.folder, self.config)
        if resume:
            self.metrics.cut(self.state.step, self.state.validated)

    def run(self) -> None:
        """Train to the end. Raises :class:`Interrupted` when a signal ended it early; all is saved then."""
        with self._held:
            self._run()

    def _run(self) -> None:
        if self.state.at_end(self.config.train) and not self._validation_due():
            if self.main and status(self.folder.description) != "finished":
                with self._described():
                    pass  # it was killed when nothing was left to do but to say so
            return
        with Interrupt() as interrupt, self._described(), self._bar() as tell, closing(self._batches()) as batches:
            if self.main and self.state.step == 0:
                self.previews.write_sources(self._watch(interrupt))
            began = time.perf_counter() - self.state.seconds
            try:
                while self.state.step < self.config.train.steps or self._validation_due():
                    if not self._validation_due():
                        stop = self._step(batches, interrupt)
                        self.state.seconds = time.perf_counter() - began
                        if self.state.step % self.config.train.log_every == 0 or self.state.at_end(self.config.train):
                            tell(self._log())
                        if stop:
                            raise Interrupted(interrupt.signal or signal.SIGTERM)  # or another rank heard it
                    if self._validation_due():
                        self._validate_or_save(interrupt)
                        self.state.seconds = time.perf_counter() - began
                    if self.state.checkpoint_due(self.config.train):
                        self._save()
            except Interrupted:
                self._save()
                raise

    def _step(self, batches: Iterator[Batch], interrupt: Interrupt) -> bool:
        """One update of the weights. Returns whether any rank was asked to stop."""
        config, fabric = self.config.train, self.fabric
        # Dropout and the like depend on the step alone, so that a resumed run draws the same.
        torch.manual_seed((self.config.seed << 32) + (self.state.step << 12) + fabric.global_rank)
        warm = min((self.state.step + 1) / config.warmup, 1.0) if config.warmup else 1.0
        decay = warm * (1 - self.state.step / config.steps) ** config.power
        for group, rate in zip(self.optimizer.param_groups, self._first_rates, strict=True):
            group["lr"] = rate * decay
        seen = Observation.nothing(len(self.data.classes), fabric.device)
        images: list[str] = []
        broken: list[BrokenFileError] = []
        for part, batch in enumerate(self._next(batches)):
            images += [self.data.names[draw.image] for draw in batch.draws]
            broken += batch.broken
            labels = batch.labels.to(fabric.device, non_blocking=True)
            pixels = self.model.spec.preprocessing.apply(batch.images.to(fabric.device, non_blocking=True))
            if config.channels_last:
                pixels = pixels.contiguous(memory_format=torch.channels_last)
            with self._no_sync(part < config.accumulate - 1), self._computing():
                logits = self.network(pixels)
                result = self.criterion(logits, labels, [draw.seed for draw in batch.draws])
                fabric.backward(result.loss / config.accumulate)
            seen += observe(result, labels, len(self.data.classes), batch.skipped)
        total = seen.reduced(fabric, stop=interrupt.signal is not None)
        if not math.isfinite(total.loss):
            raise self._not_finite(seen, images)
        if total.skipped:  # all ranks know it, so all are here
            self._name(broken)
        with self._computing():
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.sampler.running.observe(total.counts)
        self.window += total
        self.state.skipped += total.skipped
        self.state.step += 1
        return total.stop

    def _next(self, batches: Iterator[Batch]) -> list[Batch]:
        """All of a step, before any of it is computed: where one cannot be had, the steps before it are saved."""
        try:
            return [next(batches) for _ in range(self.config.train.accumulate)]
        except UserError:
            if self.state.step and self.fabric.world_size == 1:  # other ranks would have to know of it
                self._save()
            raise

    def _batches(self) -> Generator[Batch, None, None]:
        config = self.config
        low, high = config.data.scale
        zoom = config.data.zoom
        augmentation = Augmentation(config.data.crop, (zoom * low, zoom * high), config.data.flip)
        stream = DrawStream(
            self.sampler,
            batch=config.train.batch,
            accumulate=config.train.accumulate,
            rank=self.fabric.global_rank,
            ranks=self.fabric.world_size,
            first=self.state.step,
            last=config.train.steps,
        )
        return crop_loader(
            self.data,
            augmentation,
            stream,
            workers=config.data.workers,
            lag=config.sampling.lag,
            pin=self.fabric.device.type == "cuda",
            timeout=config.data.timeout,
            skip_broken=config.data.skip_broken,
        )

    def _log(self) -> dict[str, Any]:
        """A line of metrics over the steps since the last one."""
        running = self.sampler.running.after(self.state.step)
        entry = {
            "step": self.state.step,
            "split": "train",
            **self.window.summary(),
            "lr": self.optimizer.param_groups[0]["lr"],
            "miou": float(running[self.sampler.present].mean()),
            "iou": running.tolist(),
            "probabilities": self.sampler.probabilities(running).tolist(),
            **({"skipped": self.window.skipped} if self.config.data.skip_broken else {}),
            "time": {"seconds": round(self.state.seconds, 3), "compute": round(self.state.compute, 3)},
        }
        self._write(entry)
        self.window = self._no_window()
        return entry

    def _validate_or_save(self, interrupt: Interrupt) -> None:
        """Where a validation fails, the steps before it are good."""
        alone = self.fabric.world_size == 1
        if not alone:
            self._save()  # now: torchrun, asked to stop, gives its ranks 30 seconds, and a validation may take longer
        try:
            self._validate(self._watch(interrupt))
        except Interrupted:
            raise
        except Exception:
            if alone:
                self._save()
            raise

    def _watch(self, interrupt: Interrupt) -> Callable[[], None]:
        """For what takes long: it may be left. Ranks must agree on when to stop, so there one that is alone may."""
        return interrupt.check if self.fabric.world_size == 1 else lambda: None

    def _validate(self, watch: Callable[[], None]) -> None:
        began = time.perf_counter()
        summary = self.validation(self.state.step, watch)
        took = round(time.perf_counter() - began, 3)
        self._write({"step": self.state.step, "split": "val", **summary, "time": {"validation": took}})
        if self.state.best is None or summary["miou"] > self.state.best["miou"]:
            self.state.best = {"step": self.state.step, "miou": summary["miou"]}
        self.state.validated = self.state.step
        if self.main:
            text = f"step {self.state.step}: val mIoU {summary['miou']:.4f}, best {self.state.best['miou']:.4f}"
            say(f"{text} at step {self.state.best['step']}")

    def _no_window(self) -> Observation:
        """On the CPU, where the sums over ranks end."""
        return Observation.nothing(len(self.data.classes), torch.device("cpu"))

    def _name(self, broken: list[BrokenFileError]) -> list[BrokenFileError]:
        """Tell of the broken files that any rank met, and return them."""
        everyone = [error for part in gathered(self.fabric, broken) for error in part]
        for error in everyone:
            self._tell_broken(error)
        return everyone

    def _validation_due(self) -> bool:
        return self.state.validation_due(self.config.train)

    def _save(self) -> None:
        """A checkpoint of this step. All ranks hold the same, but for the running IoU's copies: one writes."""
        if self.main:
            self.metrics.sync()
            content = {
                "step": self.state.step,
                "validated": self.state.validated,
                "best": self.state.best,
                "processes": self.fabric.world_size,
                "seconds": self.state.seconds,
                "compute": self.state.compute,
                "skipped": self.state.skipped,
                "model": self.model.module.state_dict(),
                "spec": self.model.spec.to_dict(),
                "classes": self._classes(),
                "config": dump_config(self.config),
                "optimizer": self.optimizer.state_dict(),
                "precision": self.fabric.strategy.precision.state_dict(),
                "running": self.sampler.running.state_dict(),
                "window": self.window.values.cpu(),
            }
            write_checkpoint(self.folder.checkpoints, self.state.step, content)
            best = [self.state.best["step"]] if self.state.best else []
            keep = (*self.config.train.keep_steps, *best)
            prune(self.folder.checkpoints, step=self.state.step, last=self.config.train.keep_last, keep=keep)
        self.fabric.barrier()

    def _restore(self, stored: dict[str, Any]) -> None:
        if stored.get("processes") != self.fabric.world_size:
            raise UserError(
                f"{self.folder.path}: the run is one of {stored.get('processes')} processes, "
                f"this command has {self.fabric.world_size}; the batch would be another one"
            )
        with fitting(self.folder.checkpoints, "the run"):
            self.model.module.load_state_dict(stored["model"])
            self.optimizer.load_state_dict(stored["optimizer"])
            self.fabric.strategy.precision.load_state_dict(stored["precision"])
            self.sampler.running.load_state_dict(stored["running"])
            self.window.values[: len(stored["window"])] = stored["window"]
            self.state = State(*(stored.get(each.name, each.default) for each in fields(State)))
            self.state.check(self.config.train.steps)
        if self.main:
            say(f"resumed at step {self.state.step} of {self.config.train.steps}")

    def _classes(self) -> list[dict[str, Any]]:
        return [info.to_dict() for info in self.data.classes]

    @contextmanager
    def _computing(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.state.compute += time.perf_counter() - began

    def _no_sync(self, enabled: bool) -> Any:
        """Gradients are exchanged with the last micro-batch alone."""
        several = self.fabric.world_size > 1
        return self.fabric.no_backward_sync(self.network, enabled=enabled) if several else nullcontext()

    def _not_finite(self, seen: Observation, images: list[str]) -> UserError:
        mine = (self.fabric.global_rank, images) if not math.isfinite(seen.loss) else None
        names = [name for entry in gathered(self.fabric, mine) if entry for name in entry[1]]
        return UserError(
            f"the loss is not finite at step {self.state.step + 1}, on the images {', '.join(names)}; "
            f"a lower train.lr than {self.config.train.lr:g} may help"
        )

    def _write(self, entry: dict[str, Any]) -> None:
        if self.main:
            self.metrics.append(entry)
            if self._board is not None:
                self._board.write(entry)

    def _described(self) -> AbstractContextManager[None]:
        """run.json, by one process."""
        about = {**describe_run(self.config.seed, self.fabric.world_size), "classes": self._classes()}
        return described(self.folder.description, about, self._end) if self.main else nullcontext()

    def _end(self) -> dict[str, Any]:
        """How far the run came, for run.json."""
        skipped = {"skipped": self.state.skipped} if self.config.data.skip_broken else {}
        return {"step": self.state.step, "best": self.state.best, **skipped}

    @contextmanager
    def _bar(self) -> Iterator[Any]:
        with progress_bar() as bar:
            task = bar.add_task("training", total=self.config.train.steps, completed=self.state.step, visible=self.main)

            def tell(entry: dict[str, Any]) -> None:
                text = f"loss {entry['loss']:.4f}, train mIoU {entry['miou']:.3f}"
                bar.update(task, completed=entry["step"], description=text)

            yield tell
