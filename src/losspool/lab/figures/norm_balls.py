"""Fig. 1: unit circles of p-norms, and the set W that weights are chosen from, for two pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from losspool.lab.figures import style

Points = NDArray[np.float64]  # (k, 2)

NORMS = (1, 1.4, 2, 4, math.inf)
N, P, TAU = 2, 1.4, 0.6
GAMMA = N ** -(1 - 1 / P)  # 1/q = 1 - 1/p

_HALF_DEGREES = np.arange(721) * math.pi / 360  # the corners of p = 1 and p = ∞ are among them
_SMALL = 9.5
_SET = "#cfe3e6"  # pale even beside FAINT: both bounding lines and the axes show on it


def directions(angles: Points) -> Points:
    """Unit vectors: (k,) -> (k, 2)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def norm_ball(p: float, radius: float = 1.0) -> Points:
    """The closed curve ‖w‖_p = radius."""
    along = directions(_HALF_DEGREES)
    return radius * along / _norm(along, p)


def weight_set() -> Points:
    """The closed boundary of W = {w : ‖w‖_p ≤ γ, ‖w‖_∞ ≤ τ}."""
    # Between half degrees the eight corners would be cut off, so their angles are added.
    corner = math.atan2((GAMMA**P - TAU**P) ** (1 / P), TAU)
    corners = [quarter * math.pi / 2 + turn for quarter in range(4) for turn in (corner, math.pi / 2 - corner)]
    along = directions(np.sort(np.concatenate([_HALF_DEGREES, corners])))
    return along * np.minimum(GAMMA / _norm(along, P), TAU / _norm(along, math.inf))


def draw() -> Figure:
    """Left the circles, right the set W. Call inside ``style.styled()``."""
    figure = Figure(figsize=(8.4, 4.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_circles(left)
    _draw_set(right)
    return figure


def _norm(points: Points, p: float) -> Points:
    return np.linalg.norm(points, ord=p, axis=1, keepdims=True)


def _draw_circles(axes: Axes) -> None:
    gap = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}  # a line makes room for its name
    for p, colour in zip(NORMS, style.ramp(len(NORMS)), strict=True):
        axes.plot(*norm_ball(p).T, color=colour)
        if p == math.inf:
            _note(axes, "p = ∞", (1, 1), (0, 3), color=colour, ha="right", va="bottom")
        else:  # on the diagonal every other circle runs at -45°
            place = 2 ** (-1 / p)
            look = {"rotation": -45, "ha": "center", "va": "center", "bbox": gap}
            _note(axes, f"p = {p:g}", (place, place), (0, 0), color=colour, **look)
    axes.set_title("‖w‖ₚ = 1")
    _cross(axes, 1.12, {-1: "−1", 0: "0", 1: "1"})


def _draw_set(axes: Axes) -> None:
    dark, light = style.ramp(3)[:2]
    axes.fill(*weight_set().T, color=_SET, linewidth=0)
    axes.plot(*norm_ball(P, GAMMA).T, color=dark)
    axes.plot(*norm_ball(math.inf, TAU).T, color=light, linestyle=(0, (4, 1.6)))
    axes.plot(1 / N, 1 / N, "o", color=style.INK, markersize=6)
    _note(axes, f"‖w‖ₚ ≤ γ ≈ {GAMMA:.2f}", (0.0, GAMMA), (0, 7), color=dark, ha="center", va="bottom")
    _note(axes, "‖w‖∞ ≤ τ", (TAU, -TAU), (0, -6), color=light, ha="left", va="top")
    _note(axes, "uniform (½, ½)", (1 / N, 1 / N), (-7, -5), color=style.INK, ha="right", va="top")
    axes.text(-0.25, -0.2, "W", fontsize=16, ha="center", va="center")
    axes.set_title(f"W for n = {N}, p = {P:g}, τ = {TAU:g}")
    _cross(axes, 1.12, {-TAU: "−τ", 0: "0", TAU: "τ", GAMMA: "γ", -GAMMA: "−γ"})


def _note(axes: Axes, text: str, place: tuple[float, float], shift: tuple[float, float], **look: Any) -> None:
    axes.annotate(text, place, shift, textcoords="offset points", fontsize=_SMALL, **look)


def _cross(axes: Axes, reach: float, ticks: dict[float, str]) -> None:
    """Equal scales, and a cross through the origin."""
    axes.axhline(0, color=style.FAINT, linewidth=0.8, zorder=0.5)
    axes.axvline(0, color=style.FAINT, linewidth=0.8, zorder=0.5)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="w₁", ylabel="w₂")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_yticks(list(ticks), list(ticks.values()))
