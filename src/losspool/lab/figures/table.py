"""The table of the paper's figures, and how they are written to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from losspool.lab.comparison import Statistics
from losspool.lab.figures import evolution, gain, norm_balls, optimal_weights, style
from losspool.segmentation.base import UserError, say

_OF_THE_LOSS = {"fig1": norm_balls.draw, "fig2": optimal_weights.draw}
_OF_RUNS = {"fig3": gain.draw, "fig4": evolution.draw}


def write_figures(folder: Path, statistics: Statistics | None, only: Sequence[str] | None = None) -> list[Path]:
    """Write the figures, each as PNG and SVG; return the files.

    Args:
        folder: created if missing.
        statistics: of the runs that ``fig3`` and ``fig4`` show; without it only the other two are drawn.
        only: names such as ``fig1`` (default: all; a figure that the runs have no data for is skipped with a message).
    """
    written = []
    for name in _chosen(statistics, only):
        with style.styled():
            try:
                figure = _figure(name, statistics)
            except UserError as error:
                if only:
                    raise
                say(f"left out: {name}, {error}")
            else:
                written += style.save_figure(figure, folder / name, ".png", ".svg")
    return written


def _chosen(statistics: Statistics | None, only: Sequence[str] | None) -> list[str]:
    possible = [*_OF_THE_LOSS, *_OF_RUNS]
    for name in only or ():
        if name not in possible:
            raise UserError(f"unknown figure {name!r}; choose from {', '.join(possible)}")
        if name in _OF_RUNS and statistics is None:
            raise UserError(f"{name} is drawn from runs, and none were given")
    wanted = only or (_OF_THE_LOSS if statistics is None else possible)
    return [name for name in possible if name in wanted]


def _figure(name: str, statistics: Statistics | None) -> Figure:
    if statistics is None or name in _OF_THE_LOSS:
        return _OF_THE_LOSS[name]()
    return _OF_RUNS[name](statistics)
