"""Names beside points, none over another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

Boxes = NDArray[np.float64]  # (k, 4): left, bottom, right, top, in points of 1/72 inch

_DISTANCES = (4, 5, 10, 15, 22, 30, 40, 52, 66, 85, 110)  # from the point to the nearest edge of its name, in points
_LEADER = 5  # a name farther away than this is tied to its point by a line
_MARKER = 3.5
_AIR = 1.2
_ON_A_LINE, _ON_A_BAR, _ON_A_LEADER = 10.0, 2.5, 4.0
_NEAR = np.array([-5, -3, 5, 3])
_TURNS = [math.radians(angle) for angle in (0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202, 67, 293, 113, 247)]


def text_size(text: str, size: float) -> tuple[float, float]:
    """Width and height of a text, in points. Call inside ``style.styled()``."""
    figure = Figure(dpi=72)
    box = Text(0, 0, text, fontsize=size, figure=figure).get_window_extent(FigureCanvasAgg(figure).get_renderer())
    return box.width, box.height


def name_points(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], *, size: float) -> list[str]:
    """Write each name beside its point, clear of all points and other names; return the names that found no place.

    Call it when everything else is drawn: the names do not move the axes. Lines in the axes are avoided where possible.
    """
    if not points:
        return []
    figure = cast(Figure, axes.figure)
    figure.draw_without_rendering()  # lays the figure out, so that data has its final place
    scale = 72 / figure.dpi
    centres = axes.transData.transform(np.asarray(points, dtype=float)) * scale
    inside = axes.get_window_extent()
    drawn = list(_drawn_lines(axes))
    ground = _Ground(
        frame=np.array([inside.x0, inside.y0, inside.x1, inside.y1]) * scale,
        markers=np.concatenate([centres - _MARKER, centres + _MARKER], axis=1),
        lines=np.array([box for _, box in drawn]).reshape(-1, 4),
        costs=np.array([cost for cost, _ in drawn]),
        names=np.empty((0, 4)),
    )
    unplaced = []
    for index in _crowded_first(centres):
        centre = centres[index]
        place = ground.best_place(index, centre, np.array(text_size(names[index], size)))
        if place is None:
            unplaced.append(index)
            continue
        ground.take(place)
        shift = (place.box[:2] + place.box[2:]) / 2 - centre
        _write(axes, points[index], names[index], shift, size, leader=len(place.leader) > 0)
    return [names[index] for index in sorted(unplaced)]


class _Place(NamedTuple):
    distance: float
    box: Boxes  # (4,)
    leader: Boxes  # the line to the point, in small boxes


@dataclass
class _Ground:
    """What lies where. Names keep clear of markers and of each other, and of lines if they can."""

    frame: Boxes
    markers: Boxes
    lines: Boxes
    costs: Boxes
    """Of lying on each of the lines, in points of distance: what a name would go to avoid it."""
    names: Boxes

    def best_place(self, index: int, centre: Boxes, extent: Boxes) -> _Place | None:
        """The free place of the lowest cost."""
        free = [place for place in _places(centre, extent) if self._free(place.box)]
        untied = [place for place in free if not any(_touches(step, self.names).any() for step in place.leader)]
        return min(untied or free, key=lambda place: self._cost(index, place), default=None)  # of equal ones the first

    def take(self, place: _Place) -> None:
        self.names = np.vstack([self.names, place.box])
        self.lines = np.vstack([self.lines, place.leader])
        self.costs = np.append(self.costs, np.full(len(place.leader), _ON_A_LEADER))

    def _free(self, box: Boxes) -> bool:
        within = (box[:2] >= self.frame[:2]).all() and (box[2:] <= self.frame[2:]).all()
        return bool(within and not _touches(box, self.names).any() and not _touches(box, self.markers).any())

    def _cost(self, index: int, place: _Place) -> float:
        others = np.delete(self.markers, index, axis=0)
        crossed = sum(bool(_touches(step, others).any()) for step in place.leader)
        # A name beside a foreign marker is read as that one's.
        foreign = 0 if len(place.leader) else _touches(place.box + _NEAR, others).sum()
        return float(place.distance + self.costs[_touches(place.box, self.lines)].sum() + 3 * crossed + 8 * foreign)


def _crowded_first(centres: Boxes) -> list[int]:
    """Who has many neighbours chooses first."""
    distances = np.hypot(*(centres[:, None] - centres[None]).T)
    crowd = (1 / (distances + 10)).sum(0)
    return sorted(range(len(centres)), key=lambda index: (-crowd[index], index))


def _places(centre: Boxes, extent: Boxes) -> Iterator[_Place]:
    half = extent / 2 + _AIR
    for distance in _DISTANCES:
        for turn in _TURNS:
            along = np.array([math.cos(turn), math.sin(turn)])
            middle = centre + along * distance + np.clip(along * 1.5, -1, 1) * half
            box = np.concatenate([middle - half, middle + half])
            leader = np.empty((0, 4))
            if distance > _LEADER:
                steps = centre + np.linspace(0, 1, 24)[:, None] * (middle - centre)
                leader = np.concatenate([steps - 0.5, steps + 0.5], axis=1)
                leader = leader[~_touches(box, leader)]
            yield _Place(float(distance), box, leader)


def _touches(box: Boxes, others: Boxes) -> NDArray[np.bool_]:
    return np.all((box[:2] < others[:, 2:]) & (box[2:] > others[:, :2]), axis=1)


def _drawn_lines(axes: Axes) -> Iterator[tuple[float, Boxes]]:
    """The straight pieces of lines and bars in the axes, and what it costs to lie on one."""
    paths = [(_ON_A_LINE, line.get_transform().transform_path(line.get_path())) for line in axes.lines]
    for bars in axes.collections:
        if isinstance(bars, LineCollection):
            paths += [(_ON_A_BAR, bars.get_transform().transform_path(path)) for path in bars.get_paths()]
    for cost, path in paths:
        for start, end in pairwise(np.asarray(path.vertices, dtype=float) * 72 / cast(Figure, axes.figure).dpi):
            yield cost, np.concatenate([np.minimum(start, end), np.maximum(start, end)])


def _write(axes: Axes, point: tuple[float, float], name: str, shift: Boxes, size: float, *, leader: bool) -> None:
    line = {"arrowstyle": "-", "color": "#8c8c8c", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0.5, 0.5)}
    note = axes.annotate(
        name,
        point,
        tuple(shift),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=size,
        arrowprops=line if leader else None,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.3},
    )
    note.set_in_layout(False)
