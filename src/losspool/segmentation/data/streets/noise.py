"""Wrong labels on purpose, to see how a loss copes with label noise."""

from __future__ import annotations

import numpy as np

from losspool.segmentation.base import UserError
from losspool.segmentation.data.protocol import IGNORE, Pixels
from losspool.segmentation.data.streets.chance import Dice


def with_wrong_blobs(label: Pixels, share: float, num_classes: int, dice: Dice) -> Pixels:
    """Give each blob another class with probability ``share``. A blob is a connected region (by edges) of one class."""
    try:
        from scipy.ndimage import label as connected
    except ImportError:
        raise UserError("data.streets_noise needs scipy: pip install 'losspool[lab]'") from None
    noisy = label.copy()
    for number in np.unique(label[label != IGNORE]).tolist():
        blobs, count = connected(label == number)
        swapped = np.full(count + 1, number, label.dtype)
        for blob in range(1, count + 1):
            if dice.chance(share):
                other = dice.whole(0, num_classes - 2)
                swapped[blob] = other + (other >= number)
        noisy = np.where(blobs > 0, swapped[blobs], noisy)
    noisy.setflags(write=False)
    return noisy
