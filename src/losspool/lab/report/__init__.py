"""A comparison of runs as one page to look at: no network, no server, one file."""

from losspool.lab.report.build import write_report

__all__ = ["write_report"]
