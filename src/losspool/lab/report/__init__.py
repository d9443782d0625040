"""The report: a comparison of runs as one HTML file that needs no network and no server."""

from losspool.lab.report.build import write_report

__all__ = ["write_report"]
