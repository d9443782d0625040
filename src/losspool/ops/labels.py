"""The labels of a block of pixels, class indices or class probabilities: their losses, and the gradient of these."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from losspool.ops.logits import Place
from losspool.ops.pixel_losses import (
    PixelLoss,
    gradient_shares,
    pixel_losses,
    void_and_indices,
    void_and_indices_unseen,
)


class HardLabels:
    """Class indices (B, N), with void pixels."""

    def __init__(self, target: Tensor, class_weight: Tensor | None, pixel: PixelLoss, look: bool) -> None:
        self.shape = target.shape
        self._target, self._class_weight, self._pixel, self._look = target, class_weight, pixel, look

    def losses(self, place: Place, block: Tensor, peak: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return the losses, -1 if void, Σ exp(logit - peak), and whether all losses were seen to be finite.

        ``memory`` receives the exponentials.
        """
        divide = void_and_indices if self._look else void_and_indices_unseen
        void, indices = divide(self._target[place[:2]], self._pixel, block.shape[1])
        found, total = pixel_losses(block, peak, indices, self._class_weight, self._pixel, memory)
        finite = self._look and math.isfinite(float(found.sum()))
        if void is not None and finite:
            found.lerp_(found.new_full((), -1.0), void.to(found.dtype))  # several times faster than masked_fill_
        elif void is not None:
            found.masked_fill_(void.bool(), -1.0)
        return found, total, finite

    def to_gradient(self, place: Place, exponentials: Tensor, divisor: Tensor, factors: Tensor, clean: bool) -> None:
        """Turn exponentials, of which ``divisor`` is the sum, into the gradient of Σ factors·ℓ.

        ``clean`` says that no logit is NaN, not even of a void pixel.
        """
        labels, classes = self._target[place[:2]].long(), exponentials.shape[1]
        hard, soft, total = gradient_shares(factors, labels, self._class_weight, pixel=self._pixel, classes=classes)
        exponentials.mul_(total / divisor.unsqueeze(1))  # total·softmax
        # Void pixels may have any class: their share is 0.
        exponentials.scatter_add_(1, labels.clamp(0, classes - 1).unsqueeze(1), hard.neg())
        if soft is not None:
            exponentials.sub_(soft)
        if not clean:
            exponentials.masked_fill_((labels == self._pixel.ignore_index).unsqueeze(1), 0.0)


class SoftLabels:
    """Class probabilities (B, C, N). With ε the smoothing and c the class weights, ℓ is -Σ c·((1-ε)·y + ε/C)·log p."""

    def __init__(self, target: Tensor, class_weight: Tensor | None, pixel: PixelLoss, look: bool) -> None:
        self.shape = target.shape[0], target.shape[2]
        self._target, self._class_weight, self._smoothing = target, class_weight, pixel.label_smoothing
        self._look = look

    def losses(self, place: Place, block: Tensor, peak: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, bool]:
        """As :meth:`HardLabels.losses`. No pixel is void."""
        shares = self._shares(place, block.dtype)
        below = torch.sub(block, peak.unsqueeze(1), out=memory)  # at most 0
        picked = (shares * below).sum(1)
        total = below.exp_().sum(1)
        found = total.log().mul_(shares.sum(1)).sub_(picked)
        return found, total, self._look and math.isfinite(float(found.sum()))

    def to_gradient(self, place: Place, exponentials: Tensor, divisor: Tensor, factors: Tensor, clean: bool) -> None:
        """As :meth:`HardLabels.to_gradient`."""
        shares = self._shares(place, exponentials.dtype)
        exponentials.mul_((factors * shares.sum(1) / divisor).unsqueeze(1))
        exponentials.addcmul_(shares, factors.unsqueeze(1), value=-1.0)

    def _shares(self, place: Place, dtype: torch.dtype) -> Tensor:
        """(b, C, n): c·((1-ε)·y + ε/C)."""
        shares = self._target[place.images, :, place.pixels].to(dtype)
        if self._smoothing > 0:
            shares = (1.0 - self._smoothing) * shares + self._smoothing / shares.shape[1]
        return shares if self._class_weight is None else shares * self._class_weight.to(dtype).view(1, -1, 1)
