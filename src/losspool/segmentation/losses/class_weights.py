"""What losses take from the class frequencies of the training data: class weights, and offsets of the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import UserError
from losspool.segmentation.data import ClassIndex

if TYPE_CHECKING:
    from losspool.segmentation.losses.settings import LossConfig


def inverse_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """1/(C · share of the valid pixels), so that the mean weight of a pixel is 1; 0 for classes not in the data."""
    pixels = _pixels(index)
    present = pixels > 0
    frequency = pixels / pixels.sum() * present.sum()
    return np.divide(1.0, frequency, out=np.zeros_like(pixels), where=present)


def median_frequency(index: ClassIndex) -> NDArray[np.float64]:
    """Median frequency divided by the class's frequency (Eigen and Fergus, 2015); 0 for classes not in the data.

    A class's frequency is its number of pixels divided by all pixels of the images that contain the class.
    """
    pixels = _pixels(index)
    present = pixels > 0
    area = ((index.pixels > 0) * index.sizes.prod(1)[:, None]).sum(0)
    frequency = np.divide(pixels, area, out=np.zeros_like(pixels), where=present)
    return np.divide(np.median(frequency[present]), frequency, out=np.zeros_like(pixels), where=present)


def effective_number(index: ClassIndex, beta: float) -> NDArray[np.float64]:
    """(1 - β)/(1 - β^n) for a class of n pixels (Cui et al., 2019); 0 for classes not in the data."""
    pixels = _pixels(index)
    return np.divide(1 - beta, 1 - beta**pixels, out=np.zeros_like(pixels), where=pixels > 0)


BALANCES: dict[str, Callable[[ClassIndex, LossConfig], NDArray[np.float64]]] = {
    "inverse": lambda index, settings: inverse_frequency(index),
    "median": lambda index, settings: median_frequency(index),
    "effective": lambda index, settings: effective_number(index, settings.effective_beta),
}
"""The weightings that ``loss.class_weights`` may name, besides none."""


def balancing_weights(settings: LossConfig, index: ClassIndex) -> NDArray[np.float64]:
    """(C,): the weights of ``loss.class_weights``, scaled to a mean of 1 over the training pixels."""
    wanted = settings.class_weights
    if isinstance(wanted, str):
        weights = BALANCES[wanted](index, settings)
    else:
        weights = np.array(wanted, np.float64)
        if len(weights) != index.pixels.shape[1]:
            raise UserError(
                f"loss.class_weights must have one number for each of the {index.pixels.shape[1]} classes, "
                f"got {len(weights)}"
            )
    pixels = _pixels(index)
    total = (weights * pixels).sum()
    if total == 0:
        raise UserError(f"loss.class_weights must weight a class of the training data, got {list(wanted)}")
    return weights * pixels.sum() / total


def logit_offsets(settings: LossConfig, index: ClassIndex) -> NDArray[np.float64]:
    """(C,): τ·log π, where π is a class's share of the training pixels (Menon et al., 2021).

    A class that is not in the data gets 0. With its log π = -∞ the loss would never push its logit down, and the
    network could predict it everywhere.
    """
    pixels = _pixels(index)
    prior = np.where(pixels > 0, pixels / pixels.sum(), 1.0)
    return settings.logit_adjustment * np.log(prior)


def _pixels(index: ClassIndex) -> NDArray[np.float64]:
    return index.pixels.sum(0).astype(np.float64)
