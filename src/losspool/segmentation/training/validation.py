"""Validation during training. Every rank scores its part of the images, and rank 0 writes the previews."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.config import Config
from losspool.segmentation.data import Dataset
from losspool.segmentation.models import Model
from losspool.segmentation.prediction import Predictor, Scores, Weigher, score
from losspool.segmentation.training.previews import Previews


@dataclass(frozen=True)
class Validation:
    """Everything a validation needs. Each call runs one validation."""

    fabric: Fabric
    config: Config
    model: Model
    data: Dataset
    previews: Previews
    class_weights: NDArray[np.float64] | None
    name: Callable[[list[BrokenFileError]], list[BrokenFileError]]
    """Warns about the broken files that any rank found, and returns them."""

    def __call__(self, step: int, watch: Callable[[], None]) -> dict[str, Any]:
        """The scores over all ranks, as written to metrics.jsonl. ``watch`` may raise to stop."""
        module = self.model.module.eval()
        if self.fabric.world_size > 1:
            # Each rank has its own BatchNorm statistics; the checkpoint holds those of rank 0.
            for buffer in module.buffers():
                torch.distributed.broadcast(buffer, 0)
        predict = Predictor(
            module,
            self.model.spec.preprocessing,
            stride=self.model.spec.output_stride,
            zoom=self.config.data.zoom,
            config=self.config.evaluate,
            device=self.fabric.device,
        )
        mine = range(self.fabric.global_rank, len(self.data), self.fabric.world_size)
        scores = score(predict, self.data, mine, watch, self.config.data.skip_broken)
        if self.fabric.global_rank == 0:
            self.previews.write(step, Weigher(self.config.loss, self.class_weights, predict), watch)
        module.train()
        broken = None if scores.broken is None else self.name(scores.broken)
        return Scores(self._total(scores.matrix), self._total(scores.looks), scores.look_names, broken).summary()

    def _total(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum over ranks."""
        reduced = self.fabric.all_reduce(torch.from_numpy(part).to(self.fabric.device), reduce_op="sum")
        return cast(Tensor, reduced).cpu().numpy()
