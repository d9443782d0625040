"""Scores of made-up runs in plain Python, from their files and not by our readers."""

import json
import math
import statistics

STEPS = (40, 50, 60)
"""The checkpoints whose mean is a run's score."""
_STUDENT = {2: 12.706204736432095, 3: 4.302652729749464}  # of 95 %, by the number of pairs (printed tables)


def lines(run, split="val"):
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {entry["step"]: entry for entry in entries if entry["split"] == split}


def score(run, pick=lambda entry: entry["miou"]):
    found = lines(run)
    return statistics.mean(pick(found[step]) for step in STEPS)


def interval(gains):
    """Their mean, and the ends of Student's interval."""
    mean = statistics.mean(gains)
    reach = _STUDENT[len(gains)] * statistics.stdev(gains) / math.sqrt(len(gains))
    return mean, mean - reach, mean + reach
