"""The look of all figures, and how they are written: the same input gives the same bytes.

No pyplot: figures are plain objects, which need no display and do not outlive their call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from losspool.segmentation.base import replacing

COLORMAP = "viridis"  # monotone in lightness: readable in grey print and with any colour blindness
INK = "#222222"
FAINT = "#d9d9d9"
DPI = 160

SETTINGS: dict[Any, Any] = {
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.facecolor": "white",  # not transparent: dark text must stay legible on a dark page
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.solid_joinstyle": "round",
    "xtick.color": INK,
    "ytick.color": INK,
    "image.cmap": COLORMAP,
    "image.interpolation": "nearest",
    "text.parse_math": False,  # names come from outside: a $ in one is a dollar
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "losspool",  # without it the ids are random
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save inside this: matplotlib's defaults plus ours, independent of the user's settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def ramp(count: int) -> list[str]:
    """Colours for an ordered parameter, dark to light, without the palest end, which vanishes on white."""
    return [to_hex(colormaps[COLORMAP](0.8 * i / max(count - 1, 1))) for i in range(count)]


def label_ends(axes: Axes, labels: Sequence[str], *, gap: float) -> None:
    """Name each line at its right end, in its colour, at least ``gap`` apart (in units of y)."""
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in axes.lines]
    y = -float("inf")
    for end, line, text in sorted(zip(ends, axes.lines, labels, strict=True), key=lambda item: item[0]):
        y = max(end, y + gap)
        axes.annotate(
            text,
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=line.get_color(),
            annotation_clip=False,
        )


def text_size(text: str, size: float) -> tuple[float, float]:
    """Width and height of a text, in points. Call inside :func:`styled`."""
    figure = Figure(dpi=72)
    box = Text(0, 0, text, fontsize=size, figure=figure).get_window_extent(FigureCanvasAgg(figure).get_renderer())
    return box.width, box.height


def save_figure(figure: Figure, stem: Path, *suffixes: str) -> list[Path]:
    """Write ``stem`` with each of ``suffixes`` (".png", ".svg"), each atomically, without date or version."""
    paths = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    for path in paths:
        blank = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
        with replacing(path) as partial:
            figure.savefig(partial, format=path.suffix[1:], dpi=DPI, metadata=blank)
    return paths
