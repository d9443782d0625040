"""Made-up runs, and what their report holds."""

from pathlib import Path

import pytest

from lab_runs import write_lab
from report_parts import report


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """base and lmp with three seeds each."""
    return write_lab(tmp_path_factory.mktemp("lab") / "runs", previews=False)


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Path:
    return write_lab(tmp_path_factory.mktemp("report") / "runs", absent=2)


@pytest.fixture(scope="session")
def data(lab) -> dict:
    return report(lab).data
