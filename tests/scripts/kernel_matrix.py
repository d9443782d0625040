"""Check the kernels on the whole hard matrix in Triton's interpreter (hours on one core; sizes as arguments).

Usage: python tests/scripts/kernel_matrix.py [SIZE ...]
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ |= {"TRITON_INTERPRET": "1", "LOSSPOOL_KERNELS": "interpret"}
sys.path.insert(0, str(Path(__file__).parents[1]))

from torch import Tensor

import kernel_interpreter
import problems
from kernel_cases import assert_exact


def cases(n: int) -> Iterator[tuple[str, Tensor, float, float, bool]]:
    """Every (name, losses, p, m, whether m is a share) of size n."""
    for names, rows, m in problems.stacked(n) if n in problems.SIZES else ():
        for p in problems.P_VALUES if n < 10_000 else (1.0, 1.001, 1.3, 1000.0):
            for name, row in zip(names, rows, strict=True):
                yield name, row, p, m, False
    for share in [share for size, share in problems.CRUMBS if size == n]:
        for name, losses in problems.losses(n).items():
            for p in problems.P_VALUES:
                yield name, losses, p, share, True


if __name__ == "__main__":
    kernel_interpreter.prepare()
    failures = 0
    for n in map(int, sys.argv[1:] or sorted({*problems.SIZES, *(size for size, _ in problems.CRUMBS)})):
        start, checked, wrong = time.monotonic(), 0, 0
        for name, losses, p, m, share in cases(n):
            checked += 1
            try:
                assert_exact([name], losses[None], p, m, share)
            except AssertionError as error:
                wrong += 1
                print(f"n = {n}: {error}", flush=True)
        failures += wrong
        print(f"n = {n}: {checked} cases, {wrong} failures, {time.monotonic() - start:.0f} s", flush=True)
    sys.exit(failures > 0)
