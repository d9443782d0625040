"""Solver for the optimal weights of loss max-pooling, in plain tensor operations for any device."""

from losspool.solver.counting import Gather
from losspool.solver.optimum import Solution, solve, weights

__all__ = ["Gather", "Solution", "solve", "weights"]
