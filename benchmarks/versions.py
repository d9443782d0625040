"""Compare this version of losspool with that of an earlier commit, on one thread, in interleaved rounds.

    python benchmarks/versions.py COMMIT

Both run the workloads of this folder. Ratios to another library also move with that library and with the machine; these
do not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import Step, compare, interleave

ROOT = Path(__file__).resolve().parents[1]
STEPS: dict[str, tuple[Any, ...]] = {
    "upsampled 2×19×69×69 to 550×550": ("training_step", "losspool upsampled", "upsampled-550"),
    "upsampled 1×19×128×256 to 1024×2048": ("training_step", "losspool upsampled", "upsampled-2048"),
    "cross_entropy 2×19×550×550": ("training_step", "losspool", "full"),
    "cross_entropy 2×19×256×256": ("training_step", "losspool", "2×19×256×256"),
    "cross_entropy 4×19×128×128": ("training_step", "losspool", "4×19×128×128"),
    "cross_entropy 4×19×64×64": ("training_step", "losspool", "4×19×64×64"),
    "cross_entropy 32×2×64×64": ("training_step", "losspool", "32×2×64×64"),
    "cross_entropy 8×5×32×32": ("training_step", "losspool", "8×5×32×32"),
    "cross_entropy 512×1000": ("training_step", "losspool", "512×1000"),
    "pooling_weights 1×605,000": ("pooling_step", 1, 605_000),
    "pooling_weights 2×302,500": ("pooling_step", 2, 302_500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier version")
    parser.add_argument("--rounds", type=int, default=15, help="rounds per comparison (15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", options.commit, "src"], cwd=ROOT, capture_output=True)
        if archive.returncode:
            sys.exit(f"{options.commit}: git finds no such version ({archive.stderr.decode().strip()})")
        subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
        print(f"| work | at `{options.commit}` | now | ratio | quartiles |\n|---|---:|---:|---:|---|")
        for work, arguments in STEPS.items():
            steps = {
                version: Step(_step, (str(source), *arguments), repeats=5)
                for version, source in {"now": ROOT / "src", "before": Path(folder) / "src"}.items()
            }
            times, failures = interleave(steps, options.rounds, threads=1)
            if failures:
                sys.exit(f"{work} could not be timed: {failures}")
            ratio = compare(times["now"], times["before"])
            cells = f"{1e3 * ratio.theirs:.1f} ms | {1e3 * ratio.ours:.1f} ms | {ratio.median:.2f}"
            print(f"| {work} | {cells} | {ratio.lower:.2f}–{ratio.upper:.2f} |", flush=True)


def _step(source: str, kind: str, *arguments: Any) -> Callable[[], object]:
    """A step of ``contestants``, in a process that has not imported losspool yet."""
    sys.path.insert(0, source)
    import contestants

    make: Callable[..., Callable[[], object]] = getattr(contestants, kind)
    return make(*arguments)


if __name__ == "__main__":
    main()
