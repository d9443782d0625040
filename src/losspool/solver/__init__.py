"""Solver for the optimal weights of loss max-pooling, in plain tensor operations for any device."""

from losspool.solver.optimum import Solution, solve, weights
from losspool.solver.tally import Gather

__all__ = ["Gather", "Solution", "solve", "weights"]
