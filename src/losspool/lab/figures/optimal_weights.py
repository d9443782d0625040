"""Fig. 2: the optimal weights of 100 pixels, where p varies and where m varies."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import losspool
from losspool.lab.figures import style

PIXELS = 100


class Curve(NamedTuple):
    label: str
    p: float
    m: float | str  # as losspool takes it: a float is a share of the pixels, "1px" one of them
    weights: Tensor  # (n,), float64


class Panel(NamedTuple):
    title: str
    curves: list[Curve]


def synthetic_losses() -> Tensor:
    """n sorted losses: the quantiles of an exponential distribution, many easy pixels and a few hard ones."""
    ranks = torch.arange(1, PIXELS + 1, dtype=torch.float64)
    return -torch.log1p(-(ranks - 0.5) / PIXELS)


def optimal_weight_panels() -> list[Panel]:
    """The curves of the paper's Fig. 2: w* where p varies, and where m varies."""
    losses = synthetic_losses().unsqueeze(0)

    def curve(label: str, p: float, m: float | str) -> Curve:
        return Curve(label, p, m, losspool.pooling_weights(losses, p=p, m=m)[0])

    norms = [1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf]
    by_p = [curve("p = ∞" if p == math.inf else f"p = {p:g}", p, 1 / 3) for p in norms]
    # m is never below one pixel, so that is what the paper's m/n = 0 comes to.
    by_m = [curve("m/n = 0\n(one pixel)", 1.7, "1px")]
    by_m += [curve(f"m/n = {share:g}", 1.7, share) for share in (0.1, 0.2, 0.4, 0.8, 1.0)]
    return [Panel("m = n/3, varying p", by_p), Panel("p = 1.7, varying m", by_m)]


def draw() -> Figure:
    """Two panels of weights, and under each the losses that they belong to. Call inside ``style.styled()``."""
    panels = optimal_weight_panels()
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    grid = figure.subplots(2, len(panels), sharex=True, gridspec_kw={"height_ratios": [4.2, 1]})
    for (weights, losses), panel in zip(grid.T, panels, strict=True):
        _draw_weights(weights, panel)
        _draw_losses(losses)
    grid[0, 0].set_ylabel("weight  w* · n")
    grid[1, 0].set_ylabel("loss")
    figure.align_ylabels()
    return figure


def _draw_weights(axes: Axes, panel: Panel) -> None:
    ranks = range(1, PIXELS + 1)
    for curve, colour in zip(panel.curves, style.ramp(len(panel.curves)), strict=True):
        axes.plot(ranks, (curve.weights * PIXELS).numpy(), color=colour)
    top = 1.06 * max(float(curve.weights.max()) for curve in panel.curves) * PIXELS
    axes.set(title=panel.title, xlim=(1, PIXELS), ylim=(0, top))
    axes.grid(axis="y")
    style.label_ends(axes, [curve.label for curve in panel.curves], gap=0.052 * top)


def _draw_losses(axes: Axes) -> None:
    losses = synthetic_losses().numpy()
    axes.fill_between(range(1, PIXELS + 1), losses, color=style.FAINT, linewidth=0)
    axes.set(xlabel="pixels, sorted by loss", ylim=(0, None), xticks=[1, 25, 50, 75, 100])
