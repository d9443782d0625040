"""Real data, where it is: beside the project or where LOSSPOOL_DATA points."""

import os
from pathlib import Path

import pytest


def shared_data(*parts: str) -> Path:
    """The path below the folder of real data; the test is skipped, with the reason, where it is absent."""
    root = os.environ.get("LOSSPOOL_DATA") or Path(__file__).parents[2] / "shared" / "data"
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"no real data here: {Path(*parts)} (set LOSSPOOL_DATA to the folder that holds it)")
    return path
