"""Solver for the optimal weights of loss max-pooling, in plain tensor operations for any device."""

from losspool.solver.counting import Exchange
from losspool.solver.optimum import solve, weights
from losspool.solver.trimming import trimmed

__all__ = ["Exchange", "solve", "trimmed", "weights"]
