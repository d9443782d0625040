"""Pooling problems made by chance: every p, m, dtype, shape and scope, with zeros, ties, void, infinities and NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Sums of losses near float64's own limit overflow, in the mean as well; beyond 1e30 logits differ by more than float32.
LARGEST = {torch.float16: 6e4, torch.bfloat16: 3e38, torch.float32: 3e38, torch.float64: 1e300}
LARGEST_LOGIT = {torch.float16: 6e4, torch.bfloat16: 1e30, torch.float32: 1e30, torch.float64: 1e200}


@dataclass
class Problem:
    """Arguments of ``max_pool``, or with ``target`` those of ``cross_entropy``."""

    number: int
    kind: str
    values: Tensor  # losses, or logits
    p: float
    m: float
    scope: str
    mask: Tensor | None = None
    target: Tensor | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        what = "losses" if self.target is None else "logits"
        void = "" if self.mask is None else f", {int((~self.mask).sum())} of them masked"
        listed = f"\n{self.values.flatten().tolist()}" if self.values.numel() <= 64 else ""
        return (
            f"problem {self.number}: {what} ({self.kind}) {tuple(self.values.shape)} {self.values.dtype}{void}, "
            f"p = {self.p!r}, m = {self.m!r}, scope = {self.scope!r}, {self.options}{listed}"
        )


def make(seed: int, number: int) -> Problem:
    random = np.random.default_rng([seed, number])
    dtype = DTYPES[random.integers(4)]
    p = _some_p(random)
    return (_logits if random.random() < 0.15 else _losses)(random, number, dtype, p)


def _some_p(random: np.random.Generator) -> float:
    kinds = (
        lambda: (1, 1.0)[random.integers(2)],
        lambda: 1 + 10 ** random.uniform(-12, -3),
        lambda: random.uniform(1.001, 1.01),
        lambda: (1.1, 1.3, 1.7, 2, 2.0, 3)[random.integers(6)],
        lambda: random.uniform(1.01, 4),
        lambda: 10 ** random.uniform(0.5, 6),
        lambda: (math.inf, 1e17, 10**30)[random.integers(3)],
    )
    return kinds[random.choice(len(kinds), p=(0.15, 0.08, 0.12, 0.25, 0.2, 0.12, 0.08))]()


def _some_m(random: np.random.Generator, n: int) -> float:
    kinds = (
        lambda: 10 ** random.uniform(-4, 0),
        lambda: (0.1, 0.25, 0.5, 0.9, 1.0)[random.integers(5)],
        lambda: int(random.integers(1, max(n, 1) + 1)),
        lambda: 1,
        lambda: max(n - int(random.integers(2)), 1),
        lambda: n + int(random.integers(1, 9)),
    )
    return kinds[random.choice(len(kinds), p=(0.35, 0.2, 0.25, 0.08, 0.07, 0.05))]()


def _some_shape(random: np.random.Generator, scope: str) -> tuple[int, ...]:
    images = int(random.choice((1, 2, 3, 5), p=(0.5, 0.25, 0.15, 0.1)))
    pixels = int(10 ** random.uniform(0, 3.5))
    if random.random() < 0.01:
        pixels = int(random.choice((0, 20_000)))  # none, and enough for the search to begin with a sample
    if scope != "image" and random.random() < 0.2:
        return (images * pixels,)
    rows = int(random.integers(1, max(math.isqrt(pixels), 1) + 1))
    shapes = ((images, pixels), (images, rows, pixels // rows), (images, 1, rows, pixels // rows))
    return shapes[random.integers(3)]


def _spread(random: np.random.Generator, n: int) -> tuple[str, np.ndarray]:
    """Positive values of about one, as pixels of an image may spread."""
    kinds = {
        "uniform": lambda: random.random(n),
        "exponential": lambda: random.exponential(size=n),
        "log-normal": lambda: np.exp(random.choice((1, 3, 6)) * random.standard_normal(n)),
        "two clusters": lambda: np.where(random.random(n) < random.random(), 1e-6, 10) * (1 + 0.01 * random.random(n)),
        "few values": lambda: random.choice(random.exponential(size=int(random.integers(1, 6))), n),
        "near ties": lambda: 0.7 * (1 + 2.0**-23 * random.integers(0, random.integers(2, 9), n)),
        "wide range": lambda: 10 ** random.uniform(-12, 3, n),
        "equal": lambda: np.full(n, random.random() + 0.01),
        "outlier": lambda: np.where(np.arange(n) == n // 2, 1e4, random.random(n)),
    }
    name = list(kinds)[random.integers(len(kinds))]
    return name, kinds[name]()


def _losses(random: np.random.Generator, number: int, dtype: torch.dtype, p: float) -> Problem:
    scope = str(random.choice(("image", "batch", "global"), p=(0.55, 0.4, 0.05)))
    shape = _some_shape(random, scope)
    size = math.prod(shape)
    kind, values = _spread(random, size)
    if random.random() < 0.4:  # from denormal to huge
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        values = values * 10 ** random.uniform(math.log10(smallest), math.log10(LARGEST[dtype]))
    values = values.clip(max=LARGEST[dtype])
    if random.random() < 0.3:
        kind += " with zeros"
        values[random.random(size) < random.choice((0.05, 0.2, 0.5, 0.99, 1.0))] = 0
    if random.random() < 0.05 and size:
        kind += " and not finite"
        values[random.integers(size, size=random.integers(1, 4))] = random.choice((math.inf, math.nan))
    mask = None
    if random.random() < 0.35:
        mask = torch.from_numpy(random.random(shape) >= random.choice((0.01, 0.3, 0.9, 1.0)))
        rot = torch.tensor(random.choice((math.nan, math.inf, -math.inf, -5.0, 0.0, 1e4)))
    losses = torch.from_numpy(values).to(dtype).view(shape)
    if mask is not None:
        losses = torch.where(mask, losses, rot.to(dtype))  # under a mask anything goes
    if random.random() < 0.1 and losses.ndim > 2:  # a view whose strides are in another order
        losses = losses.transpose(1, -1).contiguous().transpose(1, -1)
    return Problem(number, kind, losses, p, _some_m(random, size // shape[0] if size else 1), scope, mask)


def _logits(random: np.random.Generator, number: int, dtype: torch.dtype, p: float) -> Problem:
    scope = str(random.choice(("image", "batch")))
    images, classes, pixels = int(random.integers(1, 4)), int(random.integers(1, 22)), int(10 ** random.uniform(0, 2.7))
    shape = (images, classes, pixels) if random.random() < 0.5 else (images, classes, 1, pixels)
    limit = LARGEST_LOGIT[dtype]
    scale = 10 ** random.uniform(-3, 2) if random.random() < 0.8 else 10 ** random.uniform(-6, math.log10(limit))
    logits = (scale * random.standard_normal(shape)).clip(-limit, limit)
    if random.random() < 0.15:
        logits = np.sign(logits) * scale  # ties
    labels = random.integers(0, classes, (images, *shape[2:]))
    kind = f"scale {scale:.0e}"
    smoothing = float(random.choice((0.0, 0.1))) if random.random() < 0.4 else 0.0
    if random.random() < 0.1 and classes > 1 and smoothing == 0:
        kind += ", a class ruled out"
        logits[:, -1] = -math.inf
        labels %= classes - 1
    if random.random() < 0.05:
        kind += ", not finite"
        logits[0, random.integers(classes), ..., random.integers(pixels)] = random.choice(
            (math.inf, -math.inf, math.nan)
        )
    ignored = int(random.choice((-100, 255, -1, 0)))
    if random.random() < 0.6:
        void = random.random(labels.shape) < random.choice((0.05, 0.5, 1.0))
        labels[void] = ignored
        if random.random() < 0.3:
            logits = np.where(np.expand_dims(void, 1), random.choice((math.nan, math.inf, 1e4)), logits)
    kinds = (torch.int64, torch.int32, torch.int16) if ignored < 0 else (torch.int64, torch.uint8)
    target = torch.from_numpy(labels).to(kinds[random.integers(len(kinds))])
    options: dict[str, Any] = {"ignore_index": ignored, "label_smoothing": smoothing}
    if random.random() < 0.3:
        weight = random.exponential(size=classes) * (random.random(classes) < 0.9)
        options["weight"] = torch.from_numpy(weight).float()
    values = torch.from_numpy(logits).to(dtype)
    return Problem(number, kind, values, p, _some_m(random, pixels), scope, None, target, options)
