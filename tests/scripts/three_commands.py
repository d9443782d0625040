"""Import, plan and train on each made-up download, and print the mIoU: ``make plans``."""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from raw_downloads import DOWNLOADS
from three_commands_for_tests import three_commands


def main() -> None:
    worst = 1.0
    for name, write in DOWNLOADS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            miou = three_commands(write, Path(folder))
            print(f"{name}: mIoU {miou:.3f} after {time.perf_counter() - began:.0f} s", flush=True)
            worst = min(worst, miou)
    sys.exit(0 if worst > 0.9 else f"the worst mIoU is {worst:.3f}, not more than 0.9")


if __name__ == "__main__":
    main()
