"""Fig. 1: the curves are the norms' circles, and W's outline is that of the set which the loss maximises over."""

import math

import numpy as np
import pytest
import torch

from losspool import reference
from losspool.lab.figures import norm_balls, style


@pytest.fixture(scope="module")
def panels():
    with style.styled():
        return norm_balls.draw().axes


def norm(x, y, p):
    """By hand."""
    return max(abs(x), abs(y)) if p == math.inf else (abs(x) ** p + abs(y) ** p) ** (1 / p)


def points(line):
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def words(axes):
    return {text.get_text(): text for text in axes.texts}


def closed_and_all_round(curve):
    angles = np.unwrap([math.atan2(y, x) for x, y in curve])
    assert np.hypot(*np.subtract(curve[0], curve[-1])) < 1e-12
    assert angles[-1] - angles[0] == pytest.approx(2 * math.pi)
    assert 0 <= np.diff(angles).min() <= np.diff(angles).max() < math.radians(0.51)


def test_circles(panels):
    lines = panels[0].lines[:5]
    for line, p in zip(lines, (1, 1.4, 2, 4, math.inf), strict=True):
        assert [norm(x, y, p) for x, y in points(line)] == pytest.approx([1] * len(line.get_xdata()), abs=1e-12)
        closed_and_all_round(points(line))
    shades = [sum(bytes.fromhex(line.get_color()[1:])) for line in lines]
    assert shades == sorted(shades)  # and so they are reported apart in grey


def test_every_circle_is_named_in_its_colour(panels):
    named = words(panels[0])
    for line, name in zip(panels[0].lines, ("p = 1", "p = 1.4", "p = 2", "p = 4", "p = ∞"), strict=False):
        assert named[name].get_color() == line.get_color()
        x, y = named[name].xy
        assert norm(x, y, math.inf if name == "p = ∞" else float(name[4:])) == pytest.approx(1)


def test_the_bounds_of_the_set(panels):
    p, tau = 1.4, 0.6
    gamma = 2 ** (-1 / (p / (p - 1)))
    ball, box = panels[1].lines[:2]
    assert [norm(x, y, p) for x, y in points(ball)] == pytest.approx([gamma] * len(ball.get_xdata()), abs=1e-12)
    assert [norm(x, y, math.inf) for x, y in points(box)] == pytest.approx([tau] * len(box.get_xdata()), abs=1e-12)
    assert ball.get_linestyle() != box.get_linestyle()
    assert {"‖w‖ₚ ≤ γ ≈ 0.82", "‖w‖∞ ≤ τ", "W", "uniform (½, ½)"} <= set(words(panels[1]))
    assert [tick.get_text() for tick in panels[1].get_xticklabels()] == ["−τ", "0", "τ", "γ", "−γ"]
    assert list(panels[1].get_xticks()) == pytest.approx([-tau, 0, tau, gamma, -gamma])


def test_the_outline_of_the_set(panels):
    p, tau = 1.4, 0.6
    gamma = 2 ** (1 / p - 1)
    outline = panels[1].patches[0].get_xy()
    closed_and_all_round(outline)
    for x, y in outline:  # inside both, and on one of the two
        assert max(norm(x, y, p) / gamma, norm(x, y, math.inf) / tau) == pytest.approx(1, abs=1e-12)


def test_the_outline_reaches_what_the_loss_finds(panels):
    """W's support function in the directions of non-negative losses is the pooled loss, with m = (γ/τ)^p."""
    gamma = 2 ** (1 / 1.4 - 1)
    outline = panels[1].patches[0].get_xy()
    for losses in ([1.0, 0.0], [0.2, 1.0], [1.0, 1.0], [3.0, 2.6], [0.7, 0.1]):
        pooled = reference.pool(torch.tensor(losses), p=1.4, m=(gamma / 0.6) ** 1.4).value
        assert (outline @ losses).max() == pytest.approx(pooled, rel=2e-5)


def test_the_uniform_weighting_lies_in_it(panels):
    (dot,) = (line for line in panels[1].lines if line.get_marker() == "o")
    assert points(dot) == [(0.5, 0.5)]
    assert norm(0.5, 0.5, 1.4) <= norm_balls.GAMMA * (1 + 1e-12)
    assert words(panels[1])["uniform (½, ½)"].xy == (0.5, 0.5)


def test_scales_are_equal(panels):
    for axes in panels:
        assert axes.get_aspect() == 1
        assert axes.get_xlim() == axes.get_ylim()
