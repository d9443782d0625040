"""How far a run is, and what is due there."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from losspool.segmentation.config import TrainConfig


@dataclass
class State:
    """How far a run is."""

    step: int = 0
    """Updates done."""
    validated: int = 0
    """The step of the last validation."""
    best: dict[str, Any] | None = None
    """Step and mIoU of the best validation."""
    seconds: float = 0.0
    """Time spent so far, resumptions included."""
    compute: float = 0.0
    """The part of it in forward, loss, backward and optimiser; the rest is data, counting, validation and files."""
    skipped: int = 0
    """Crops that were replaced because their image is broken."""

    def check(self, steps: int) -> None:
        """Raises ValueError for what no run of so many steps writes."""
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
        """As a checkpoint holds it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def complete(self, train: TrainConfig) -> bool:
        return self.step == train.steps and not self.validation_due(train)

    def validation_due(self, train: TrainConfig) -> bool:
        due = self.step % train.validate_every == 0 or self.step == train.steps
        return due and self.step > self.validated

    def checkpoint_due(self, train: TrainConfig) -> bool:
        is_best = self.best is not None and self.best["step"] == self.step
        kept = self.step in train.keep_steps
        return self.step % train.checkpoint_every == 0 or is_best or self.step == train.steps or kept
