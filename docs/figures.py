"""Draws pictures of the documentation: ``python docs/figures.py``. The same input gives the same bytes.

- ``p-and-m.png``: what p and m do to the weights of a generated street.
- ``newton.svg``: Newton's steps to the root of η.
- ``counting.svg``: how passes of counting narrow the bracket of a pool.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

import losspool
from losspool import reference
from losspool.lab.figures import COLORMAP, save_figure, styled
from losspool.segmentation.data import Dataset, open_dataset
from losspool.segmentation.prediction import palette_image

CELL = 16  # pixels: the width of a cell of the stand-in's logits
SCENE = 17
TOP = 6  # the largest weight that the colours tell apart
NORMS, SHARES = (1, 1.3, 2.3), (0.1, 0.25, 0.5)
DARK, LIGHT, INK, FAINT = "#33638d", "#3fbc73", "#222222", "#d9d9d9"

Floats = NDArray[np.float64]


def street() -> Dataset:
    return open_dataset("streets", None, "val", size=(256, 512), count=SCENE + 1)


def stand_in_losses(label: Tensor, classes: int) -> Tensor:
    """(H, W) -> (H, W): the losses of a prediction that knows the label, but only as averages over coarse cells.

    It errs where networks do, at thin objects and outlines, and needs no training. Void counts as one more class.
    """
    label = label.long().clamp(max=classes)
    one_hot = F.one_hot(label, classes + 1).permute(2, 0, 1).unsqueeze(0).double()
    coarse = F.avg_pool2d(one_hot, CELL)
    shares = F.interpolate(coarse, size=label.shape, mode="bilinear", align_corners=False)
    smooth = (shares + 0.01) / (1.01 + 0.01 * classes)
    return -smooth.gather(1, label.view(1, 1, *label.shape)).log()[0, 0]


def scene_losses() -> tuple[Dataset, Tensor]:
    dataset = street()
    label = torch.from_numpy(dataset.label(SCENE).copy())
    return dataset, stand_in_losses(label, len(dataset.classes))


def draw_p_and_m() -> Figure:
    dataset, losses = scene_losses()
    label = palette_image(dataset.label(SCENE).copy(), dataset.classes).convert("RGB")
    figure = Figure(figsize=(8.4, 7.2), layout="constrained")
    panels = figure.subplots(1 + len(SHARES), len(NORMS))
    titles = ("image", "label", "loss of each pixel")
    for axes, picture, title in zip(panels[0], (dataset.image(SCENE), label, losses.numpy()), titles, strict=True):
        _show(axes, picture, title, cmap="magma")
    for row, share in zip(panels[1:], SHARES, strict=True):
        for axes, p in zip(row, NORMS, strict=True):
            weights = losspool.pooling_weights(losses.unsqueeze(0), p=p, m=share)[0] * losses.numel()
            _show(axes, weights.numpy(), f"p = {p:g}, m = {share:.0%}", vmin=0, vmax=TOP)
    colors = ScalarMappable(Normalize(0, TOP), COLORMAP)
    scale = figure.colorbar(colors, ax=list(panels.flat), location="bottom", fraction=0.03, aspect=60, pad=0.02)
    scale.ax.tick_params(labelsize=8.5)
    scale.set_label(f"weight of a pixel; 1 in the plain mean, {TOP} and more are yellow", fontsize=8.5)
    return figure


def _show(axes: Axes, picture: Any, title: str, **look: Any) -> None:
    axes.imshow(picture, interpolation="antialiased", **look)
    axes.set_title(title, fontsize=9, loc="center", pad=3)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def draw_newton() -> Figure:
    """η of six losses, and Newton's steps from the largest one."""
    losses, p, m = torch.tensor([0.1, 0.3, 0.4, 0.5, 0.8, 1.0], dtype=torch.float64), 2.0, 2.5
    q = p / (p - 1)
    powers = (losses**q).numpy()

    def eta(t: Floats) -> Floats:
        return np.asarray(m * t - np.minimum(powers[:, None], t).sum(0))

    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.subplots()
    t = np.linspace(0, 1.1, 1101)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.plot(t, eta(t), color=DARK)
    axes.plot(powers, eta(powers), "o", color=DARK, markersize=5, label="η has a kink at each loss to the power q")
    at, label = float(powers[-1]), "tangents: each root is the next step"
    while True:
        room, total = m - (powers > at).sum(), powers[powers <= at].sum()
        step = float(total / room)
        axes.plot([at, step], [room * at - total, 0], color=LIGHT, linestyle=(0, (4, 1.6)), label=label)
        axes.plot([step, step], [0, float(eta(np.array([step]))[0])], color=LIGHT, linewidth=0.9, linestyle=":")
        label = "_"
        if (powers > step).sum() == (powers > at).sum():
            break
        at = step
    assert math.isclose(step, reference.pool(losses, p=p, m=m).alpha ** q)
    axes.plot(step, 0, "o", color=LIGHT, markersize=8, label="the largest root, t* = (α*)^q")
    axes.set(xlabel="t", ylabel="η(t)", xlim=(0, 1.1))
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def draw_counting() -> Figure:
    """The losses of the street in 64 bins a pass, and the bracket that each pass leaves."""
    _, losses = scene_losses()
    values = np.sort(losses.numpy().ravel().astype(np.float32)).astype(np.float64)
    p, m, bins = 1.3, values.size / 4, 64
    q = p / (p - 1)
    low, high = math.log2(values[0]), math.log2(values[-1])
    figure = Figure(figsize=(6.8, 4.6), layout="constrained")
    for axes, number in zip(figure.subplots(3), (1, 2, 3), strict=True):
        edges = np.linspace(low, high, bins + 1)
        counts, _ = np.histogram(np.log2(values), edges)
        axes.stairs(np.sqrt(counts), edges, fill=True, color=FAINT)
        rest = (values.size - np.searchsorted(values, 2**edges, side="right")).astype(float)
        sums = np.concatenate([[0], np.cumsum(values**q)])[np.searchsorted(values, 2**edges, side="right")]
        positive = (m - rest) * (2**edges) ** q > sums
        first = int(positive.argmax())
        low, high = float(edges[first - 1]), float(edges[first])
        axes.axvspan(low, high, color=LIGHT, alpha=0.7, linewidth=0)
        axes.set(yticks=[], xlim=(edges[0], edges[-1]))
        axes.spines["left"].set_visible(False)
        axes.set_title(f"pass {number}: the bracket keeps 1 of {bins} bins", fontsize=9.5, pad=4)
        axes.tick_params(labelsize=8.5)
    axes.set_xlabel("log₂ of the loss; heights are square roots of counts")
    return figure


FIGURES = {"p-and-m.png": draw_p_and_m, "newton.svg": draw_newton, "counting.svg": draw_counting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "images", help="folder (default: docs/images)"
    )
    for name, draw in FIGURES.items():
        with styled():
            for path in save_figure(draw(), parser.parse_args().out / Path(name).stem, Path(name).suffix):
                print(path)


if __name__ == "__main__":
    main()
