"""The metrics for TensorBoard, on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from losspool.segmentation.errors import UserError


class Board:
    """Writes every number of a line of metrics under its split and name."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("train.tensorboard needs TensorBoard: pip install tensorboard") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, entry: dict[str, Any]) -> None:
        for key, value in entry.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{entry['split']}/{key}", value, entry["step"])
        self._writer.flush()
