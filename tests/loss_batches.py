"""Class indices and batches for the tests of losses."""

import numpy as np
import torch

from losspool.segmentation.data import ClassIndex


def index_from(pixels, sizes) -> ClassIndex:
    """Without positions, which losses do not use."""
    pixels = np.array(pixels)
    return ClassIndex(pixels, np.array(sizes), np.zeros(pixels.size + 1, np.int64), np.zeros((0, 2), np.int32))


def small_index() -> ClassIndex:
    """Two images of 10×10 and 10×20 pixels; class 2 is nowhere."""
    return index_from([[80, 20, 0, 0], [100, 0, 0, 50]], [[10, 10], [10, 20]])


def index_of(classes: int) -> ClassIndex:
    """Two images in which each class is twice as frequent as the one before; the last is nowhere."""
    pixels = [*(7 * 2 ** np.arange(classes - 1)), 0]
    return index_from([pixels, pixels], [[40, 50], [40, 50]])


def small_batch(classes: int = 4, images: int = 2, size: tuple[int, int] = (6, 7), dtype=torch.float64):
    """Logits at full resolution, with a gradient, and labels with void pixels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(images, classes, *size, generator=generator, dtype=dtype).mul(1.5).requires_grad_()
    labels = torch.randint(0, classes, (images, *size), generator=generator).to(torch.uint8)
    labels[0, :2] = 255
    labels[-1, :, -1] = 255
    return logits, labels
