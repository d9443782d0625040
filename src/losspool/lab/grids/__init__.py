"""Grids of runs: what they run, where, and what they produce in the end."""

from losspool.lab.grids.grid import read_grid
from losspool.lab.grids.runner import run_grid
from losspool.lab.grids.tasks import Options

__all__ = ["Options", "read_grid", "run_grid"]
