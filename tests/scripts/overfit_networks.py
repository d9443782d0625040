"""Every built-in network overfits four images to an mIoU over 0.95, resumes to the bit, and exports.

``PYTHONPATH=tests python tests/scripts/overfit_networks.py [NAME…]``; the large backbones take minutes each.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch

from four_images import check_network
from losspool.segmentation.models import MODELS


def main() -> None:
    torch.set_num_threads(1)
    failed = []
    for name in sys.argv[1:] or MODELS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            miou = check_network(Path(folder), name, "train.steps=120", size=64)
        print(f"{name}: mIoU {miou:.3f}, {time.perf_counter() - began:.0f} s", flush=True)
        failed += [] if miou > 0.95 else [name]
    sys.exit(f"not over 0.95: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
