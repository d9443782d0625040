"""The progress of a run, whether a validation or checkpoint is due, and what a checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from losspool.segmentation.base import counted, parse_yaml, say
from losspool.segmentation.config import Config, TrainConfig, dump_config
from losspool.segmentation.models import BATCH_NORMS
from losspool.segmentation.runs import checkpoint_errors
from losspool.segmentation.training.micro_batches import MicroBatches
from losspool.segmentation.training.optimization import rate_factor
from losspool.segmentation.training.setup import Setup
from losspool.segmentation.training.step_stats import StepStats


@dataclass
class State:
    """The progress of a run."""

    step: int = 0
    """Number of weight updates done."""
    validated: int = 0
    """The step of the last validation."""
    best: dict[str, Any] | None = None
    """Step and mIoU of the best validation."""
    seconds: float = 0.0
    """Training time so far, summed over resumes."""
    compute: float = 0.0
    """The part of ``seconds`` in forward, loss, backward and optimizer. The rest is data, statistics, validation and
    files."""
    skipped: int = 0
    """Number of crops that were replaced because their image is broken."""
    raised: list[list[int]] | None = None
    """Each time ``train.steps`` was raised: at which step, from which number, to which. None if never."""
    regrouped: list[list[int]] | None = None
    """Each time the number of processes changed, in the same form."""

    def check(self, steps: int) -> None:
        """Raise ValueError for a value that no run of ``steps`` steps can have written."""
        for name, most in (("step", steps), ("validated", steps), ("skipped", math.inf)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"its {name} is {value!r}")
        for name in ("seconds", "compute"):
            if not isinstance(getattr(self, name), int | float):
                raise ValueError(f"its {name} are {getattr(self, name)!r}")
        if self.best is not None:
            int(self.best["step"]), float(self.best["miou"])

    def to_dict(self) -> dict[str, Any]:
        """The fields as stored in a checkpoint."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def outcome(self, config: Config) -> dict[str, Any]:
        """The fields as run.json has them."""
        skipped = {"skipped": self.skipped} if config.data.skip_broken else {}
        changes = {name: found for name in ("raised", "regrouped") if (found := getattr(self, name))}
        return {"step": self.step, "best": self.best, **skipped, **changes}

    def validated_with(self, miou: float) -> dict[str, Any]:
        """Note the score of a validation at this step. Returns the best so far."""
        self.validated = self.step
        if self.best is None or miou > self.best["miou"]:
            self.best = {"step": self.step, "miou": miou}
        return self.best

    def complete(self, config: Config) -> bool:
        return self.step == config.train.steps and not self.validation_due(config)

    def log_due(self, train: TrainConfig) -> bool:
        return self.step % train.log_every == 0 or self.step == train.steps

    def validation_due(self, config: Config) -> bool:
        due = self.step % config.train.validate_every == 0 or self.step == config.train.steps
        return config.data.val is not None and due and self.step > self.validated

    def checkpoint_due(self, train: TrainConfig) -> bool:
        is_best = self.best is not None and self.best["step"] == self.step
        kept = self.step in train.keep_steps
        return self.step % train.checkpoint_every == 0 or is_best or self.step == train.steps or kept


def checkpoint_content(setup: Setup, state: State, window: StepStats) -> dict[str, Any]:
    """What a checkpoint holds. ``window`` sums the statistics since the last line of metrics."""
    return {
        **state.to_dict(),
        "processes": setup.fabric.world_size,
        "model": setup.model.module.state_dict(),
        "averaged": setup.averaged.values,
        "spec": setup.model.spec.to_dict(),
        "classes": [info.to_dict() for info in setup.data.classes],
        "config": dump_config(setup.config),
        "optimizer": setup.optimizer.state_dict(),
        "precision": setup.fabric.strategy.precision.state_dict(),
        "running": setup.sampler.running.state_dict(),
        "window": window.values.cpu(),
    }


def _learns_norms(setup: Setup) -> bool:
    layers = setup.model.module.modules()
    return not setup.model.spec.frozen_bn and any(isinstance(layer, BATCH_NORMS) for layer in layers)


def _norm_crops(split: MicroBatches, *, sync: bool) -> str:
    """Which crops BatchNorm takes its statistics over. The i-th of a step goes to rank i mod k, so that another number
    of processes puts other crops together; synchronised, these are consecutive ones."""
    if sync:
        return f"{counted(split.size * split.processes, 'crop')} at a time"
    return f"{counted(split.size, 'crop')} at a time in {counted(split.processes, 'process', 'processes')}"


def restored(setup: Setup, stored: dict[str, Any] | None) -> tuple[State, StepStats]:
    """Restore a run from the content of a checkpoint. Returns its state and window; those of a new run without one."""
    window = StepStats.zeros(len(setup.data.classes))
    if stored is None:
        return State(), window
    config, main = setup.config, setup.fabric.global_rank == 0
    with checkpoint_errors(setup.folder.checkpoints, "the run"):
        setup.model.module.load_state_dict(stored["model"])
        setup.averaged.load(stored.get("averaged", {}))
        setup.optimizer.load_state_dict(stored["optimizer"])
        setup.fabric.strategy.precision.load_state_dict(stored["precision"])
        setup.sampler.running.load_state_dict(stored["running"])
        window.values[: len(stored["window"])] = stored["window"]
        state = State(*(stored.get(each.name, each.default) for each in fields(State)))
        state.check(config.train.steps)
        known = parse_yaml(stored["config"])["train"]
        kept = {name: known[name] for name in ("steps", "batch", "accumulate")}
        before = replace(config.train, **kept, global_batch=known.get("global_batch"))
        split = MicroBatches.of(before, int(stored["processes"]))
    setup.split.check_kept(split, config.train, setup.criterion.scope, setup.folder.path)
    crops, crops_before = (_norm_crops(each, sync=config.model.batch_norm == "sync") for each in (setup.split, split))
    if main and crops != crops_before and _learns_norms(setup):
        change = f"{crops} instead of {crops_before}"
        say(f"warning: BatchNorm now learns from {change}; the weights will differ from those of an uninterrupted run")
    if split.processes != setup.split.processes:
        state.regrouped = [*(state.regrouped or []), [state.step, split.processes, setup.split.processes]]
    if main:
        say(f"resumed at step {state.step} of {config.train.steps}")
    if before.steps < config.train.steps:
        state.raised = [*(state.raised or []), [state.step, before.steps, config.train.steps]]
        if main:
            say(_raised(before, config.train, state.step))
    return state, window


def _raised(before: TrainConfig, now: TrainConfig, step: int) -> str:
    """That the run has more steps now, and what this does to the learning rate."""
    old, new = (train.lr * rate_factor(train, step) for train in (before, now))
    return (
        f"train.steps is raised from {before.steps} to {now.steps}: from here on the rate follows the "
        f"{now.schedule} schedule of {now.steps} steps, at {new:.3g} instead of {old:.3g}"
    )
