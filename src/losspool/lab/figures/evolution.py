"""Fig. 4: segmentations of the same images over training, the baseline above another variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from losspool.lab.comparison import Statistics
from losspool.lab.figures import style
from losspool.lab.figures.scenes import MOST_STEPS, Scene, read_scenes
from losspool.segmentation.base import plain
from losspool.segmentation.data import ClassInfo, Pixels
from losspool.segmentation.prediction import void_color

# All lengths in inches. Panels keep the shape of their pictures, so every position is known without a layout engine.
_WIDTH = 10.0
_SMALL = 8.5
_MARGIN, _GAP, _BETWEEN_SCENES = 0.1, 0.05, 0.16
_TITLE = 0.24
_LEGEND_LINE, _LEGEND_PATCH = 0.16, 0.46


@dataclass(frozen=True)
class Layout:
    """Sizes and positions."""

    column: float
    """A panel's width."""
    heights: tuple[float, ...]
    """A panel's height, by scene."""
    names: float
    """The width of the variants' names, between the left column and the others."""
    steps: int
    legend: tuple[int, int]
    """Columns and lines."""

    @property
    def width(self) -> float:
        return self.left(self.steps) + self.column + _MARGIN

    @property
    def height(self) -> float:
        scenes = sum(2 * height + _GAP for height in self.heights) + _BETWEEN_SCENES * (len(self.heights) - 1)
        return _TITLE + scenes + self.foot

    @property
    def foot(self) -> float:
        return 2 * _MARGIN + self.legend[1] * _LEGEND_LINE

    def left(self, column: int) -> float:
        """0 is the column of image and label."""
        return _MARGIN + (column and self.names - _GAP) + column * (self.column + _GAP)

    def box(self, scene: int, row: int, column: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a panel, as shares of the figure."""
        above = sum(2 * height + _GAP + _BETWEEN_SCENES for height in self.heights[:scene])
        own = self.heights[scene]
        bottom = self.height - _TITLE - above - own - row * (own + _GAP)
        return self.left(column) / self.width, bottom / self.height, self.column / self.width, own / self.height


def draw(statistics: Statistics) -> Figure:
    """The baseline and the best other variant, the first seed of each. Call inside ``style.styled()``."""
    comparison = statistics.comparison
    variants = comparison.baseline, statistics.best(comparison.rivals)
    steps, scenes = read_scenes([variant.runs[0] for variant in variants])
    names = [plain(variant.label).replace(", ", "\n") for variant in variants]
    legend = _legend(scenes, comparison.classes)
    layout = _layout(names, len(steps), scenes, legend)
    figure = Figure(figsize=(layout.width, layout.height))
    titles = ["image, label", *(f"step {step:,}" for step in steps)]
    for place, scene in enumerate(scenes):
        left = (scene.image, scene.label.colors)
        for row, (source, pictures, name) in enumerate(zip(left, scene.rows, names, strict=True)):
            panels = [source, *(picture.colors for picture in pictures)]
            for column, (picture, title) in enumerate(zip(panels, titles, strict=True)):
                axes = _panel(figure, layout.box(place, row, column), picture)
                if place == row == 0:
                    axes.set_title(title, fontsize=_SMALL, loc="center", pad=4)
                if column == 1:
                    _name_row(axes, name)
    _draw_legend(figure, layout, legend)
    return figure


def _legend(scenes: Sequence[Scene], classes: Sequence[ClassInfo]) -> list[ClassInfo]:
    """The classes that occur in the pictures, and void if it does."""
    present = frozenset[int]().union(*(scene.present for scene in scenes))
    shown = [info for label, info in enumerate(classes) if label in present]
    void = ClassInfo("void", void_color(classes))
    return shown + ([void] if any(label >= len(classes) for label in present) else [])


def _layout(names: Sequence[str], steps: int, scenes: Sequence[Scene], legend: Sequence[ClassInfo]) -> Layout:
    between = max(style.text_size(name, _SMALL)[0] for name in names) / 72 + 2 * _MARGIN
    # As wide as with all steps: a figure with few steps is narrower, its pictures are not larger.
    column = (_WIDTH - 2 * _MARGIN - between - (MOST_STEPS - 1) * _GAP) / (1 + MOST_STEPS)
    # A portrait fits into a square: otherwise one would fill the page.
    heights = tuple(column * min(scene.image.shape[0] / scene.image.shape[1], 1) for scene in scenes)
    width = 2 * _MARGIN + between + (1 + steps) * column + (steps - 1) * _GAP
    entry = max(style.text_size(plain(info.name), _SMALL)[0] for info in legend) / 72 + _LEGEND_PATCH
    columns = min(max(int((width - 2 * _MARGIN) / entry), 1), len(legend))
    return Layout(column, heights, between, steps, (columns, math.ceil(len(legend) / columns)))


def _panel(figure: Figure, box: tuple[float, float, float, float], picture: Pixels) -> Axes:
    axes = figure.add_axes(box)
    # Large pictures are averaged: taking every n-th pixel would lose poles and lamps.
    axes.imshow(picture, interpolation="antialiased")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _name_row(axes: Axes, name: str) -> None:
    look: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": _SMALL}
    axes.annotate(name, (0, 0.5), (-72 * _MARGIN, 0), xycoords="axes fraction", textcoords="offset points", **look)


def _draw_legend(figure: Figure, layout: Layout, shown: Sequence[ClassInfo]) -> None:
    patches = [Patch(facecolor=_hex(info.color), edgecolor=style.INK, linewidth=0.4) for info in shown]
    legend = figure.legend(
        patches,
        [str(index) for index in range(len(shown))],
        loc="lower center",
        bbox_to_anchor=(0.5, _MARGIN / 2 / layout.height),
        ncols=layout.legend[0],
        frameon=False,
        fontsize=_SMALL,
        handlelength=1.2,
        handleheight=1.0,
        columnspacing=1.4,
        labelspacing=0.3,
        borderpad=0,
        borderaxespad=0,
    )
    for text, info in zip(legend.get_texts(), shown, strict=True):
        text.set_text(plain(info.name))  # only now: older matplotlibs leave out a label that begins with _


def _hex(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
