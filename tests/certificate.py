"""A proof of optimality that needs no second solver: feasible, and the primal value equals the dual one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from losspool import solver


def norm(values: Tensor, order: float) -> Tensor:
    """The p-norm relative to the largest entry: torch's own overflows at large orders."""
    largest = values.max()
    return largest * torch.linalg.vector_norm(values / largest, order) if largest > 0 else largest


def violations(rows: Tensor, p: float, m: float) -> list[tuple[float, float, float]]:
    """Of each row: by how much w* exceeds τ and its p-norm γ, and how far its value is from g(λ*) of Eq. (7).

    All relative.
    """
    rows = rows.double()
    solution = solver.solve(rows, p=p, m=m, share=False)
    weights = solver.weights(rows, solution, p)
    return [
        _violations(losses, w, float(tau), float(alpha), float(value), p)
        for losses, w, tau, alpha, value in zip(
            rows, weights, solution.tau, solution.alpha, solution.value, strict=True
        )
    ]


def _violations(
    losses: Tensor, w: Tensor, tau: float, alpha: float, value: float, p: float
) -> tuple[float, float, float]:
    gamma = losses.numel() ** (1 / p - 1)
    surplus = (losses - alpha).clamp(min=0)  # λ*
    q = p / (p - 1) if p > 1 else math.inf
    dual = float(tau * surplus.sum() + gamma * norm(losses - surplus, q if p < math.inf else 1.0))
    primal = float(w @ losses)
    gap = max(abs(primal - dual), abs(primal - value))
    return float(w.max()) / tau - 1, float(norm(w, p)) / gamma - 1, gap / primal if primal else gap
