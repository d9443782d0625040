"""Run the benchmarks, print their table and save it. README.md describes the method."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch

import machine
from experiments import EXPERIMENTS, Effort
from report import Report

HERE = Path(__file__).resolve().parent
QUICK_ROUNDS = 5


def main() -> None:
    options = _parse()
    torch.set_num_threads(options.threads)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no idle compiler processes beside the clock
    partial = options.quick or bool(options.only)
    report = Report(machine.describe(), full=not partial)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else 31)
    effort = Effort(rounds, memory_rounds=1 if options.quick else 5, threads=options.threads)
    shares: dict[str, float] = {}
    for name in options.only or EXPERIMENTS:
        if options.quick and name == "scaling":
            report.skipped[name] = "a hundred million pixels are not quick"
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        start, bystanders = time.monotonic(), machine.Bystanders()
        try:
            EXPERIMENTS[name](effort, report)
        except Exception as error:  # the minutes of the other experiments must not be lost with it
            report.skipped[name] = f"failed: {error}"
            print(f"  {report.skipped[name]}", file=sys.stderr, flush=True)
            continue
        shares[name] = bystanders.share()
        print(f"  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    report.header["other processes"] = machine.describe_bystanders(shares)
    print(report.markdown(), end="", flush=True)
    report.save(options.output or HERE / ("results-partial.json" if partial else "results.json"))
    if options.publish and report.skipped:
        sys.exit(f"not published: {', '.join(report.skipped)} failed")
    if options.publish:
        report.publish(HERE)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=_positive, help=f"rounds per comparison (31; with --quick {QUICK_ROUNDS})")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="this comparison alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds, and nothing that is long")
    parser.add_argument("--threads", type=_positive, default=2, help="torch's threads (2)")
    parser.add_argument(
        "--output",
        type=Path,
        help="where to save; .json and .md are both written (results, or results-partial after --quick or --only)",
    )
    parser.add_argument("--publish", action="store_true", help="put the table into README.md and docs/speed.md as well")
    options = parser.parse_args()
    if options.publish and (options.quick or options.only):
        parser.error("--publish needs a full run: without --quick and --only")
    if options.output and not options.output.parent.is_dir():
        parser.error(f"--output {options.output}: no such folder")  # now, not after minutes of measuring
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


if __name__ == "__main__":
    main()
