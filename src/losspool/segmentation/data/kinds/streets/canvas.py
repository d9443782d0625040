"""An image with its label and look maps, painted together so that they agree to the pixel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.data.kinds.streets.chance import Field
from losspool.segmentation.data.kinds.streets.classes import Ink
from losspool.segmentation.data.protocol import Pixels

Color = tuple[float, float, float]
Point = tuple[float, float]
Edges = NDArray[np.float64]

LABELLED = 0.5
"""A brush labels pixels that it covers by at least this fraction."""


class Canvas:
    """Brushes that paint (3, H, W) colours in [0, 1]; planar, because numpy is slow on a last axis of size three.

    Every brush takes pixel coordinates, a colour, and an ink for the label (None to shade the image
    only). ``foot`` is the colour at the brush's lower end, to which the colour fades.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.height, self.width = size
        self.image: Field = np.zeros((3, *size), np.float32)
        self.inks = np.zeros((*size, 2), np.uint8)
        self._ink = self.inks.view(np.uint16)[..., 0]  # label and look, written together
        self._columns = np.arange(self.width, dtype=np.float64)
        self._rows = np.arange(self.height, dtype=np.float64)

    @property
    def label(self) -> Pixels:
        return self.inks[..., 0]

    @property
    def looks(self) -> Pixels:
        return self.inks[..., 1]

    def rectangle(
        self,
        low: Point,
        high: Point,
        color: Color,
        ink: Ink | None = None,
        *,
        foot: Color | None = None,
        opacity: float = 1.0,
    ) -> None:
        """Paint an axis-aligned rectangle between its top-left and bottom-right corners."""
        left, right = max(int(low[0]), 0), min(int(high[0]) + 1, self.width)
        top, bottom = max(int(low[1]), 0), min(int(high[1]) + 1, self.height)
        if left < right and top < bottom:
            across = _overlap(self._columns[left:right], low[0], high[0])
            down = _overlap(self._rows[top:bottom], low[1], high[1])
            self.stamp(top, left, down[:, None] * across, color, ink, foot=foot, opacity=opacity)

    def polygon(
        self,
        points: Sequence[Point],
        color: Color,
        ink: Ink | None = None,
        *,
        foot: Color | None = None,
        opacity: float = 1.0,
    ) -> None:
        """Paint a convex polygon with corners in order. Each row spans from its left to its right edges."""
        heights = [y for _, y in points]
        top, rows = self._middles(min(heights), max(heights))
        if not len(rows):
            return
        down: list[tuple[float, float]] = []
        up: list[tuple[float, float]] = []
        area = 0.0
        for (x, y), (next_x, next_y) in zip(points, (*points[1:], points[0]), strict=True):
            area += x * next_y - next_x * y
            if next_y != y:
                slope = (next_x - x) / (next_y - y)
                (down if next_y > y else up).append((slope, x - slope * y))
        left, right = (up, down) if area > 0 else (down, up)
        self._spans(top, _lines(left, rows).max(axis=0), _lines(right, rows).min(axis=0), color, ink, foot, opacity)

    def ellipse(
        self,
        center: Point,
        radii: Point,
        color: Color,
        ink: Ink | None = None,
        *,
        foot: Color | None = None,
        opacity: float = 1.0,
    ) -> None:
        top, rows = self._middles(center[1] - radii[1], center[1] + radii[1])
        if len(rows):
            off = (rows - center[1]) / radii[1]
            half = radii[0] * np.sqrt(np.maximum(1 - off * off, 0))
            self._spans(top, center[0] - half, center[0] + half, color, ink, foot, opacity)

    def glow(self, center: Point, radius: float, color: Color) -> None:
        """Add light around a lamp to the image."""
        left, right = max(int(center[0] - radius), 0), min(int(center[0] + radius) + 1, self.width)
        top, bottom = max(int(center[1] - radius), 0), min(int(center[1] + radius) + 1, self.height)
        if left < right and top < bottom:
            across = (self._columns[left:right] + 0.5 - center[0]) / radius
            down = ((self._rows[top:bottom] + 0.5 - center[1]) / radius)[:, None]
            fall = np.maximum(1 - down * down - across * across, 0).astype(np.float32)
            self.image[:, top:bottom, left:right] += fall * fall * fall * _column(color)

    def stamp(
        self,
        top: int,
        left: int,
        cover: Field,
        color: Color | Field,
        ink: Ink | None,
        *,
        foot: Color | None = None,
        opacity: float = 1.0,
    ) -> None:
        """Paint a coverage mask (h, w) inside the canvas, in one colour or in colours (3, h, w)."""
        high, wide = cover.shape
        image = self.image[:, top : top + high, left : left + wide]
        paint = color if isinstance(color, np.ndarray) else _column(color)
        if foot is not None:
            ramp = ((self._rows[:high] + 0.5) / high).astype(np.float32)
            paint = paint + (_column(foot) - paint) * ramp[:, None]
        image += (cover if opacity == 1 else cover * opacity) * (paint - image)
        if ink is not None:
            code = np.array(ink, np.uint8).view(np.uint16)
            np.copyto(self._ink[top : top + high, left : left + wide], code, where=cover >= LABELLED)

    def _middles(self, top: float, bottom: float) -> tuple[int, Edges]:
        """Return the first row between two heights, and the centres of all rows between them."""
        first = max(int(top + 0.5), 0)
        return first, self._rows[first : max(int(bottom + 0.5), 0)] + 0.5

    def _spans(
        self, top: int, low: Edges, high: Edges, color: Color, ink: Ink | None, foot: Color | None, opacity: float
    ) -> None:
        left, right = max(int(low.min()), 0), min(int(high.max()) + 1, self.width)
        if left < right:
            cover = _overlap(self._columns[left:right], low[:, None], high[:, None])
            self.stamp(top, left, cover, color, ink, foot=foot, opacity=opacity)


def scaled(color: Color, gain: float) -> Color:
    return color[0] * gain, color[1] * gain, color[2] * gain


def mix(color: Color, other: Color, share: float) -> Color:
    """Blend a fraction ``share`` of another colour into a colour."""
    r, g, b = (one + (two - one) * share for one, two in zip(color, other, strict=True))
    return r, g, b


def _lines(edges: list[tuple[float, float]], rows: Edges) -> Edges:
    """Return (edges, rows): where each edge, or its extension, intersects each row."""
    slope, offset = np.array(edges).T
    return slope[:, None] * rows + offset[:, None]


def _overlap(pixel: Edges, low: float | Edges, high: float | Edges) -> Field:
    """Return the fraction of each pixel that an interval covers, so that thin objects stay visible and edges smooth."""
    cover = np.minimum(pixel + 1, high)
    cover -= np.maximum(pixel, low)
    return np.maximum(cover, 0).astype(np.float32)


def _column(color: Color) -> Field:
    return np.array(color, np.float32)[:, None, None]
