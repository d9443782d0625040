"""Check the kernels on the whole hard matrix in Triton's interpreter (hours on one core; sizes as arguments).

Usage: python tests/scripts/kernel_matrix.py [SIZE ...]
"""

import os
import sys
import time
from pathlib import Path

os.environ |= {"TRITON_INTERPRET": "1", "LOSSPOOL_KERNELS": "interpret"}
sys.path.insert(0, str(Path(__file__).parents[1]))

import kernel_interpreter
import problems
from kernel_cases import assert_exact

if __name__ == "__main__":
    kernel_interpreter.prepare()
    failures = 0
    for n in map(int, sys.argv[1:] or problems.SIZES):
        start, cases, wrong = time.monotonic(), 0, 0
        for names, rows, m in problems.stacked(n):
            for p in problems.P_VALUES if n < 10_000 else (1.0, 1.001, 1.3, 1000.0):
                for name, row in zip(names, rows, strict=True):
                    cases += 1
                    try:
                        assert_exact([name], row[None], p, m)
                    except AssertionError as error:
                        wrong += 1
                        print(f"n = {n}: {error}", flush=True)
        failures += wrong
        print(f"n = {n}: {cases} cases, {wrong} failures, {time.monotonic() - start:.0f} s", flush=True)
    sys.exit(failures > 0)
