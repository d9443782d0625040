"""Names beside points, none over another: each takes the cheapest free place around its point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from losspool.lab.figures.style import text_size

Floats = NDArray[np.float64]  # boxes are (k, 4): left, bottom, right, top. All lengths are points of 1/72 inch

_ANGLES = np.radians([0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202, 67, 293, 113, 247])
_DISTANCES = np.repeat([4.0, 5, 10, 15, 22, 30, 40, 52, 66, 85, 110], len(_ANGLES))  # from a point to its name
_ALONG = np.tile(np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1), (len(_DISTANCES) // len(_ANGLES), 1))
_TIED = _DISTANCES > 5  # a line ties a name this far away to its point
_TAKEN, _CROSSED = 1e6, 1e3  # on a marker or name: never; a tie over another name: only if nothing else is free
_BESIDE = np.array([5, 3])
# A name goes this much farther away to avoid lying on a line, a bar, another name's tie, or beside a foreign marker.
_LINE, _BAR, _TIE, _FOREIGN = 10.0, 2.5, 4.0, 8.0


def name_points(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], *, size: float) -> list[str]:
    """Write each name beside its point, clear of all points and other names; return the names without a place.

    Call it when everything else is drawn: the names do not move the axes. Lines in the axes are avoided where possible.
    """
    figure = cast(Figure, axes.figure)
    figure.draw_without_rendering()  # lays the figure out, so that data has its final place
    scale = 72 / figure.dpi
    centres = axes.transData.transform(np.reshape(points, (-1, 2))) * scale
    frame = np.array(axes.get_window_extent().extents) * scale
    markers = _boxes(centres, 3.5)
    lines = [(cost, box * scale) for cost, box in _drawn_lines(axes)]
    boxes = np.vstack([markers, *(box for _, box in lines)])
    costs = np.array([_TAKEN] * len(markers) + [cost for cost, _ in lines])
    taken = np.empty((0, 4))
    unplaced = []
    for index in _crowded_first(centres):
        half = np.array(text_size(names[index], size)) / 2 + 1.2
        middles = centres[index] + _ALONG * _DISTANCES[:, None] + np.clip(1.5 * _ALONG, -1, 1) * half
        own = _boxes(middles, half)
        foreign = np.delete(markers, index, axis=0)
        ties = _boxes(centres[index] + np.linspace(0, 1, 24)[:, None, None] * (middles - centres[index]), 0.5)
        outside = (own[:, :2] < frame[:2]).any(1) | (own[:, 2:] > frame[2:]).any(1)
        cost = _DISTANCES + _TAKEN * outside + _overlap(own, boxes) @ costs
        cost += _FOREIGN * _overlap(_boxes(middles, half + _BESIDE), foreign).sum(1) * ~_TIED
        cost += (3 * _overlap(ties, foreign).any(-1).sum(0) + _CROSSED * _overlap(ties, taken).any((0, -1))) * _TIED
        best = int(cost.argmin())
        if cost[best] >= _TAKEN:
            unplaced.append(index)
            continue
        taken = np.vstack([taken, own[best]])
        tie = ties[:, best][~_overlap(ties[:, best], own[best : best + 1]).any(1)] if _TIED[best] else taken[:0]
        boxes, costs = np.vstack([boxes, own[best], tie]), np.append(costs, [_TAKEN, *[_TIE] * len(tie)])
        _write(axes, points[index], names[index], middles[best] - centres[index], size, tied=bool(_TIED[best]))
    return [names[index] for index in sorted(unplaced)]


def _boxes(middles: Floats, half: Floats | float) -> Floats:
    return np.concatenate([middles - half, middles + half], axis=-1)


def _overlap(boxes: Floats, others: Floats) -> NDArray[np.bool_]:
    """(…, 4) and (k, 4) -> (…, k)."""
    mine = boxes[..., None, :]
    return np.all((mine[..., :2] < others[:, 2:]) & (mine[..., 2:] > others[:, :2]), axis=-1)


def _crowded_first(centres: Floats) -> list[int]:
    """Points with many neighbours choose first."""
    crowd = (1 / (np.hypot(*(centres[:, None] - centres[None]).T) + 10)).sum(0)
    return sorted(range(len(centres)), key=lambda index: (-crowd[index], index))


def _drawn_lines(axes: Axes) -> Iterator[tuple[float, Floats]]:
    """Straight pieces of lines and bars in the axes, in pixels, with the cost of lying on one."""
    paths = [(_LINE, line.get_transform().transform_path(line.get_path())) for line in axes.lines]
    for bars in axes.collections:
        if isinstance(bars, LineCollection):
            paths += [(_BAR, bars.get_transform().transform_path(path)) for path in bars.get_paths()]
    for cost, path in paths:
        for ends in pairwise(np.asarray(path.vertices, dtype=float)):
            yield cost, np.concatenate([np.min(ends, axis=0), np.max(ends, axis=0)])


def _write(axes: Axes, point: tuple[float, float], name: str, shift: Floats, size: float, *, tied: bool) -> None:
    line = {"arrowstyle": "-", "color": "#8c8c8c", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0.5, 0.5)}
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "textcoords": "offset points"}
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.3}
    axes.annotate(name, point, tuple(shift), arrowprops=line if tied else None, bbox=box, **look).set_in_layout(False)
