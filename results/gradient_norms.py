"""The norm of the gradient per method over the first steps of training: a figure, and a table of ratios.

Train each method with ``train.log_every=1`` and the same seed; a run may be stopped after the steps that are shown. All
methods with uniform crops see the same crops at each step, so that a ratio compares two losses on the same images.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from losspool.lab.figures import COLORMAP, save_figure, styled
from losspool.segmentation.base import UserError
from losspool.segmentation.config import load_config
from losspool.segmentation.runs import RunFolder, read_metrics

Norms = NDArray[np.float64]
WINDOW = 21
"""Steps of the running median in the figure."""


def read_norms(run: Path, steps: int) -> tuple[str, Norms]:
    """The method of a run, and the norm of its gradient at each of its first steps, before clipping."""
    folder = RunFolder(run)
    method = load_config(folder.config).method
    lines = [line for line in read_metrics(folder.metrics) if line["split"] == "train" and line["step"] <= steps]
    if [line["step"] for line in lines] != list(range(1, steps + 1)):
        raise UserError(f"{folder.metrics}: needs a line for each of the steps 1 to {steps}; train with log_every=1")
    norms = [line.get("grad_norm") for line in lines]
    if not all(isinstance(norm, float) and norm > 0 for norm in norms):
        raise UserError(f"{folder.metrics}: needs a positive grad_norm in every line")
    return method, np.array(norms)


def running_median(values: Norms) -> Norms:
    """Over ``WINDOW`` steps, fewer at the ends."""
    half = WINDOW // 2
    return np.array([np.median(values[max(place - half, 0) : place + half + 1]) for place in range(len(values))])


def table(norms: Mapping[str, Norms], parts: Sequence[tuple[int, int]]) -> str:
    """Markdown: the ratio of each norm to that of the first method, step by step; the median and the middle half."""
    base, *others = norms
    head = ["method", f"norm, median of steps {parts[-1][0]}–{parts[-1][1]}", "ratio at step 1"]
    head += [f"ratio, steps {first}–{last}" for first, last in parts]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for method in (base, *others):
        ratio = norms[method] / norms[base]
        first, last = parts[-1]
        cells = [f"`{method}`", f"{np.median(norms[method][first - 1 : last]):.2f}", f"{ratio[0]:.2f}"]
        for first, last in parts:
            low, middle, high = np.percentile(ratio[first - 1 : last], (25, 50, 75))
            cells.append("1" if method == base else f"{middle:.2f} ({low:.2f}–{high:.2f})")
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(norms: Mapping[str, Norms]) -> Figure:
    """A line per method: its running median, above the single steps. Call inside ``styled()``."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, (method, values) in enumerate(norms.items()):
        color = colormaps[COLORMAP](0.9 * place / max(len(norms) - 1, 1))
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, color=color, linewidth=0.5, alpha=0.3)
        axes.plot(steps, running_median(values), color=color, label=method)
    axes.set(xlabel="step", ylabel="norm of the gradient", yscale="log", xlim=(1, None))
    axes.grid(axis="y", which="both")
    axes.legend(frameon=False, ncols=len(norms), fontsize=8.5, loc="upper right")
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
        norms = dict(found)
        if len(norms) < len(found):
            raise UserError(f"each run must be of another method, got {', '.join(method for method, _ in found)}")
        print(table(norms, [(1, options.warmup), (options.warmup + 1, options.steps)]))
        with styled():
            save_figure(draw(norms), options.out.with_suffix(""), options.out.suffix)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
