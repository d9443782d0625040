"""The memory that the prediction of a 2048×1024 image takes, beyond what the network takes for itself.

Prints JSON: bytes of a tile's logits, and for each case the rise of the resident size over the whole
prediction, and over the network's own work on the same tiles.
"""

import ctypes
import gc
import json
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from losspool.segmentation.config.schema import EvaluateConfig
from losspool.segmentation.models.preprocessing import IMAGENET
from losspool.segmentation.prediction.predictor import Predictor, tiles

CLASSES, HEIGHT, WIDTH = 19, 1024, 2048
CASES = {
    "one pass": EvaluateConfig(tiling="optimized"),
    "efficient": EvaluateConfig(tiling="efficient"),
    "several passes": EvaluateConfig(tiling="optimized", scales=(0.5, 1.0)),
}


class Stub(torch.nn.Module):
    """Coarse logits of stride 8, with hardly any memory of its own."""

    def forward(self, x):
        coarse = F.avg_pool2d(x, 8, ceil_mode=True)
        return coarse.sum(1, keepdim=True) * torch.linspace(-1, 1, CLASSES).view(1, -1, 1, 1)


def status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def rise(work: Callable[[], object]) -> int:
    """How far the resident size rises above its present value during ``work``."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that the C library keeps would be used again unseen
    before = status("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to the present size
        resettable = True
    except OSError:
        resettable = False
    work()
    # Without a reset the mark may be an earlier one: then this is an upper bound.
    return (status("VmHWM") if resettable else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024) - before


def main() -> None:
    torch.set_num_threads(1)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    stub = Stub().eval()
    Predictor(stub, IMAGENET)(image.crop((0, 0, 64, 64)))  # what torch loads at its first call is not ours
    found = {}
    for name, config in CASES.items():
        parts = [(tile.left, 0, tile.right, HEIGHT) for tile in tiles(WIDTH, config.tiling)]

        def own(parts=parts):
            for part in parts:
                Predictor(stub, IMAGENET)._pass(image.crop(part), 1.0, flip=False)  # the network's part of it

        def whole(config=config):
            Predictor(stub, IMAGENET, config=config)(image)

        width = max(right - left for left, _, right, _ in parts)
        found[name] = {"tile": CLASSES * HEIGHT * width * 4, "own": rise(own), "whole": rise(whole)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
