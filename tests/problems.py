"""The hard matrix: pooling problems that tell right from nearly right."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

P_VALUES = (1.0, 1.001, 1.01, 1.1, 1.3, 1.7, 2.0, 3.0, 10.0, 1000.0, math.inf)
SIZES = (1, 2, 3, 7, 100, 10_000)
CRUMBS = ((25, 0.28), (25, 0.56), (100, 0.07), (200, 0.14), (600, 0.07))
"""n, and a share of n that should be a whole number of pixels, but rounds to a little more."""


def pixel_counts(n: int) -> list[float]:
    """m in pixels for m/n = 1/n, 1e-3, 0.1, 0.25, 0.5, 0.9 and 1, within [1, n]."""
    shares = (1 / n, 1e-3, 0.1, 0.25, 0.5, 0.9, 1.0)
    return sorted({min(max(share * n, 1.0), float(n)) for share in shares})


def losses(n: int, seed: int = 0) -> dict[str, Tensor]:
    """Float32 losses that do not depend on m, by name."""
    g = torch.Generator().manual_seed(seed)
    uniform, normal = torch.rand(n, generator=g), torch.randn(n, generator=g)
    exponential = torch.empty(n).exponential_(generator=g)
    jitter = 1 + 0.01 * torch.rand(n, generator=g)
    coin = torch.rand(n, generator=g)
    columns = torch.arange(n) % max(int(math.sqrt(n)), 1)
    outlier = uniform.clone()
    outlier[n // 2] = 1e8
    made = {
        "uniform": uniform,
        "exponential": exponential,
        "log-normal 3": (3 * normal).exp(),
        "log-normal 6": (6 * normal).exp(),
        "two clusters": torch.where(coin < 0.5, 1e-6, 10.0) * jitter,
        "ties": torch.where(coin < 0.9, 0.5, uniform),
        "near ties": 0.7 * (1 + 2.0**-23 * (4 * coin).floor()),
        "near ties above a crowd": torch.where(coin < 0.8, 0.7, 0.7 * (1 + 2.0**-22 * jitter)),
        "huge": 3e38 * uniform,
        "all equal": torch.full((n,), 0.7),
        "outlier": outlier,
        "denormals": uniform * 1e-39,
        "sorted": exponential.sort().values,
        "striped": torch.where(columns % 4 == 0, 10 * exponential, 0.1 * exponential),
        "wide range": 10 ** (15 * coin - 12),
        "wider than float32": torch.where(coin < 0.1, 1e8, 1e-44) * jitter,
        "as wide as float32 gets": torch.where(coin < 0.5, 1e36, torch.where(coin < 0.9, 1e-40, 1e-20)) * jitter,
    }
    for share in (0.2, 0.5, 0.99, 1.0):
        made[f"{share:.0%} zeros"] = torch.where(torch.arange(n) < share * n, 0.0, uniform + 0.01)[
            torch.randperm(n, generator=g)
        ]
    return made


def stacked(n: int) -> Iterator[tuple[list[str], Tensor, float]]:
    """The matrix of size n with all problems of one m as rows: (names, losses (R, n), m in pixels)."""
    by_m: dict[float, dict[str, Tensor]] = {}
    for name, values, m in matrix(n):
        by_m.setdefault(m, {})[name] = values
    for m, named in by_m.items():
        yield list(named), torch.stack(list(named.values())), m


def matrix(n: int) -> Iterator[tuple[str, Tensor, float]]:
    """Every (name, losses, m in pixels) of size n, to be combined with every p."""
    made = losses(n)
    for m in pixel_counts(n):
        for name, values in made.items():
            yield name, values, m
        for offset in (-1, 0, 1):
            positives = math.ceil(m) + offset
            if 0 <= positives <= n:
                values = torch.where(torch.arange(n) < positives, made["exponential"], 0.0)
                yield f"{positives} positives for m = {m:g}", values, m
