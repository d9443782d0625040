"""The norm of the gradient per method over the first steps of training: a figure, and a table of ratios.

Each logged number is the mean over the steps since the one before. With the same seed, all methods with uniform crops
see the same crops at each step, so that a ratio compares two losses on the same images.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from losspool.lab.figures import COLORMAP, save_figure, styled
from losspool.segmentation.base import UserError
from losspool.segmentation.config import load_config
from losspool.segmentation.runs import RunFolder, read_metrics

Array = NDArray[np.float64]


class Norms(NamedTuple):
    """The norm of a method's gradient, before clipping, as logged at each of some steps."""

    method: str
    steps: Array
    values: Array

    def ratio(self, base: Norms, first: int, last: int) -> Array:
        chosen = (self.steps >= first) & (self.steps <= last)
        return self.values[chosen] / base.values[chosen]


def read_norms(run: Path, steps: int) -> Norms:
    """The norms of a run's first steps."""
    folder = RunFolder(run)
    lines = [line for line in read_metrics(folder.metrics) if line["split"] == "train" and line["step"] <= steps]
    norms = [line.get("grad_norm") for line in lines]
    if not norms or lines[-1]["step"] != steps:
        raise UserError(f"{folder.metrics}: has no line of step {steps}")
    if not all(isinstance(norm, float) and norm > 0 for norm in norms):
        raise UserError(f"{folder.metrics}: needs a positive grad_norm in every line")
    return Norms(load_config(folder.config).method, np.array([line["step"] for line in lines]), np.array(norms))


def table(norms: Sequence[Norms], parts: Sequence[tuple[int, int]]) -> str:
    """Markdown: the ratio of each norm to that of the first method, line by line; the median and the middle half."""
    head = ["method", *(f"ratio, steps {first}–{last}" for first, last in parts)]
    rows = [head, ["---", *["---:"] * len(parts)]]
    for each in norms:
        quartiles = [np.percentile(each.ratio(norms[0], *part), (25, 50, 75)) for part in parts]
        cells = [f"{middle:.2f} ({low:.2f}–{high:.2f})" for low, middle, high in quartiles]
        rows.append([f"`{each.method}`", *(["1"] * len(parts) if each is norms[0] else cells)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(norms: Sequence[Norms]) -> Figure:
    """A line per method. Call inside ``styled()``."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, each in enumerate(norms):
        color = colormaps[COLORMAP](0.9 * place / max(len(norms) - 1, 1))
        axes.plot(each.steps, each.values, color=color, label=each.method)
    axes.set(xlabel="step", ylabel="norm of the gradient", yscale="log", xlim=(0, None))
    for write in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        write("{x:g}")  # powers of ten would need mathematical text, which the style leaves off for names of classes
    axes.grid(axis="y", which="both")
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, ncols=len(norms), loc="outside upper center")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the first is what others are compared with")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=50, help="steps that the table lists by themselves")
    parser.add_argument("--out", required=True, type=Path, help="such as docs/images/gradient-norms.png")
    options = parser.parse_args(arguments)
    try:
        if options.out.suffix not in (".png", ".svg"):
            raise UserError(f"--out must end in .png or .svg, got {options.out}")
        if not 0 < options.warmup < options.steps:
            raise UserError(f"--warmup must be between 0 and --steps {options.steps}, got {options.warmup}")
        found = [read_norms(run, options.steps) for run in options.runs]
        if len({each.method for each in found}) < len(found):
            raise UserError(f"each run must be of another method, got {', '.join(each.method for each in found)}")
        if any(list(each.steps) != list(found[0].steps) for each in found):
            raise UserError("the runs must be logged at the same steps; train.log_every differs")
        print(table(found, [(1, options.warmup), (options.warmup + 1, options.steps)]))
        with styled():
            save_figure(draw(found), options.out.with_suffix(""), options.out.suffix)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
