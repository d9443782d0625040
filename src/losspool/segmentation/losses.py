"""Every loss that the paper compares, and two that users have now, by name, on coarse logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import losspool
from losspool.segmentation.config import LossConfig
from losspool.segmentation.data.index import ClassIndex
from losspool.segmentation.data.protocol import IGNORE
from losspool.segmentation.models.deeplab import ALIGN_CORNERS, covered, enlarge


@dataclass
class LossResult:
    """The loss of a batch, and what was seen on the way, detached."""

    loss: Tensor
    prediction: Tensor
    """(B, H, W): the arg-max at the labels' size."""
    weights: Tensor
    """(B, H, W): the weight of each pixel's cross-entropy in the loss, class weights and focal factors included."""
    stats: losspool.PoolingStats
    """α, and how many pixels are valid and saturated."""


class Criterion(nn.Module):
    """Coarse logits (B, C, h, w) and labels (B, H, W) to a loss, by the name in the config.

    All are pooled cross-entropies: the plain mean is p = ∞, the hardest pixels alone are p = 1,
    and the frequency baselines weight the classes. So all share one piece of exact, strip-wise
    code, and the same ``scope``. Focal loss alone needs the enlarged logits themselves.
    """

    class_weights: Tensor | None

    def __init__(
        self, config: LossConfig, class_weights: NDArray[np.float64] | None = None, stride: int | None = None
    ) -> None:
        """``stride`` is the network's, see :func:`losspool.segmentation.models.enlarge`."""
        super().__init__()
        self._config, self._stride = config, stride
        weights = None if class_weights is None else torch.from_numpy(class_weights).float()
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, logits: Tensor, labels: Tensor, seeds: Sequence[int] = ()) -> LossResult:
        """``seeds``, one per image, decide which pixels ``random_pixels`` takes."""
        if self._config.name == "focal":
            return self._focal(logits, labels)
        name, m = self._config.name, self._config.share
        target = labels
        if name == "lmp":
            p = self._config.p
        elif name == "bootstrapping":
            p = 1.0
        else:
            p, m = math.inf, 1.0
        if name == "random_pixels":
            target = random_pixels(labels, self._config.share, seeds)
        height, width = labels.shape[1:]
        bottom, right = covered(logits, (height, width), self._stride)
        stats = losspool.PoolingStats()
        loss = losspool.upsampled_cross_entropy(
            logits,
            F.pad(target, (0, right - width, 0, bottom - height), value=IGNORE),
            p=p,
            m=m,
            weight=self.class_weights,
            ignore_index=IGNORE,
            label_smoothing=self._config.label_smoothing,
            scope=self._config.scope,
            stats=stats,
            align_corners=ALIGN_CORNERS,
        )
        weights = cast(Tensor, stats.weights)[:, :height, :width]
        if self.class_weights is not None:
            weights = weights * self.class_weights[labels.long().clamp(max=len(self.class_weights) - 1)]
        return LossResult(loss, cast(Tensor, stats.prediction)[:, :height, :width], weights, stats)

    def _focal(self, logits: Tensor, labels: Tensor) -> LossResult:
        """(1 - q)^γ times the cross-entropy, q the probability of the label (Lin et al., 2017)."""
        full = enlarge(logits.float(), (labels.shape[1], labels.shape[2]), self._stride)
        valid = labels != IGNORE
        entropy = F.cross_entropy(
            full,
            labels.long(),
            ignore_index=IGNORE,
            reduction="none",
            label_smoothing=self._config.label_smoothing,
        )
        likely = full.log_softmax(1).gather(1, labels.long().clamp(max=full.shape[1] - 1)[:, None]).squeeze(1).exp()
        # Not down to 0: for γ < 1 the slope of the power is infinite there.
        factor = (1 - likely).clamp(min=torch.finfo(likely.dtype).eps) ** self._config.focal_gamma
        stats = losspool.PoolingStats()
        loss = losspool.max_pool(factor * entropy, p=math.inf, m=1.0, mask=valid, scope=self._config.scope, stats=stats)
        weights = cast(Tensor, stats.weights) * factor.detach()
        return LossResult(loss, full.detach().argmax(1), weights, stats)


def random_pixels(labels: Tensor, m: float | int, seeds: Sequence[int]) -> Tensor:
    """``labels`` with all but m of each image's valid pixels made void (PixelNet, Bansal et al., 2016).

    Drawn on the CPU from each image's own seed, so that the choice is the same on every device.
    """
    kept = labels.clone()
    for image, seed in zip(kept, seeds, strict=True):
        valid = (image != IGNORE).flatten().nonzero().squeeze(1)
        wanted = min(m if isinstance(m, int) else max(round(m * len(valid)), 1), len(valid))
        order = torch.randperm(len(valid), generator=torch.Generator().manual_seed(seed)).to(valid.device)
        image.view(-1)[valid[order[wanted:]]] = IGNORE
    return kept


def class_weights(name: str, index: ClassIndex) -> NDArray[np.float64] | None:
    """The weights of the frequency baselines, from the class index; 0 for classes that no image holds.

    ``inverse_frequency``: 1/(C·share of the valid pixels), so that the mean weight of a pixel is 1.
    ``median_frequency`` (Eigen and Fergus, 2015): the median frequency over the class's own, a
    frequency being the class's pixels over all pixels of the images that hold it.
    """
    pixels = index.pixels.sum(0).astype(np.float64)
    present = pixels > 0
    if name == "inverse_frequency":
        frequency = pixels / pixels.sum() * present.sum()
        return np.divide(1.0, frequency, out=np.zeros_like(pixels), where=present)
    if name == "median_frequency":
        area = ((index.pixels > 0) * index.sizes.prod(1)[:, None]).sum(0)
        frequency = np.divide(pixels, area, out=np.zeros_like(pixels), where=present)
        return np.divide(np.median(frequency[present]), frequency, out=np.zeros_like(pixels), where=present)
    return None
