"""Made-up runs, and what their report holds.

Imports are in the fixtures: pytest-xdist's own process reads this file before it starts the others.
"""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """base and lmp with three seeds each."""
    from lab_runs import write_lab

    return write_lab(tmp_path_factory.mktemp("lab") / "runs", previews=False)


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Path:
    from lab_runs import write_lab

    return write_lab(tmp_path_factory.mktemp("report") / "runs", absent=2)


@pytest.fixture(scope="session")
def data(lab) -> dict:
    from report_parts import report

    return report(lab).data
