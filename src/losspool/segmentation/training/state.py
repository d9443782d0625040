"""The progress of a run, and whether a validation or checkpoint is due."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from losspool.segmentation.config import Config, TrainConfig


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
