"""One figure: where loss max-pooling looks in a few images, by the networks of several runs through their training.

All networks are weighed with the loss of the last run, so that the maps can be compared: a plain loss has no map of its
own, it weighs every pixel alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from losspool.lab.figures import COLORMAP, save_figure, styled
from losspool.segmentation.base import UserError
from losspool.segmentation.config import LossConfig
from losspool.segmentation.data import Dataset, Pixels, check_classes
from losspool.segmentation.prediction import (
    Trained,
    TrainedRun,
    Weigher,
    WeightMap,
    heat_image,
    palette_image,
    sources_of_split,
)

_COLUMN, _SMALL = 1.7, 8.5  # inches, points


class Example(NamedTuple):
    image: Image.Image
    label: Pixels
    seed: int


def examples(dataset: Dataset, names: Sequence[str]) -> list[Example]:
    found = []
    for source in sources_of_split(dataset, names, labelled=True):
        image, label = source.read()
        assert label is not None  # it was asked for
        found.append(Example(image, label, source.seed))
    return found


def weigh(trained: Trained, loss: LossConfig, shown: Sequence[Example]) -> list[WeightMap]:
    """The weight map of each image, by one network."""
    weigher = Weigher(loss, None, trained.predictor(trained.config.evaluate))
    return [weigher(each.image, each.label, each.seed) for each in shown]


def draw(
    shown: Sequence[Example], dataset: Dataset, maps: Mapping[str, Sequence[WeightMap]], loss: LossConfig
) -> Figure:
    """Rows are images; columns the image, its label, and the map of each network. Call inside ``styled()``."""
    top = max(found.top for column in maps.values() for found in column)  # one scale for all
    columns = [
        [each.image for each in shown],
        [palette_image(each.label.copy(), dataset.classes).convert("RGB") for each in shown],
        *([heat_image(found.weights, top, found.void) for found in column] for column in maps.values()),
    ]
    height = sum(_COLUMN * each.image.height / each.image.width for each in shown)
    figure = Figure(figsize=(_COLUMN * len(columns), height + 0.75), layout="constrained")
    panels = figure.subplots(len(shown), len(columns), squeeze=False)
    for place, (title, pictures) in enumerate(zip(("image", "label", *maps), columns, strict=True)):
        for axes, picture in zip(panels[:, place], pictures, strict=True):
            _show(axes, picture)
        panels[0, place].set_title(title, fontsize=_SMALL, loc="center", pad=4)
    colors = ScalarMappable(Normalize(0, top), COLORMAP)
    scale = figure.colorbar(colors, ax=list(panels.flat), location="bottom", fraction=0.03, aspect=60, pad=0.01)
    scale.ax.tick_params(labelsize=_SMALL)
    about = f"weight by loss max-pooling (p = {loss.norm:g}, m = {loss.m}), 1 in the plain mean; void is black"
    scale.set_label(about, fontsize=_SMALL)
    return figure


def _show(axes: Axes, picture: Image.Image) -> None:
    axes.imshow(picture, interpolation="antialiased")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def make(runs: Sequence[Path], checkpoints: Sequence[str], split: str, names: Sequence[str], out: Path) -> list[Path]:
    """Draw the figure and return the files."""
    opened = [TrainedRun.open(run) for run in runs]
    networks = [run.load_one(step) for step in checkpoints for run in opened]
    last = networks[-1]
    if last.config.loss.name != "lmp":
        raise UserError(f"{runs[-1]}: the last run must pool its loss, and it has the loss {last.config.loss.name!r}")
    dataset = last.config.data.open(split)
    for trained in networks:
        check_classes(trained.classes, dataset)
    shown = examples(dataset, names)
    titles = [f"{each.config.method}, step {each.step}" for each in networks]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(
                f"two networks would both be called {title!r}: name runs of different methods, and other steps"
            )
    loss = last.config.loss.at(last.step)
    maps = {title: weigh(each, loss, shown) for title, each in zip(titles, networks, strict=True)}
    with styled():
        figure = draw(shown, dataset, maps, loss)
        return save_figure(figure, out.with_suffix(""), out.suffix)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--checkpoint", action="append", required=True, help="a step, last or best; may be repeated")
    parser.add_argument("--split", default="test")
    parser.add_argument("--name", action="append", required=True, help="an image of the split; may be repeated")
    parser.add_argument("--out", required=True, type=Path, help="such as docs/images/streets-weights.png")
    options = parser.parse_args(arguments)
    try:
        if options.out.suffix not in (".png", ".svg"):
            raise UserError(f"--out must end in .png or .svg, got {options.out}")
        for path in make(options.runs, options.checkpoint, options.split, options.name, options.out):
            print(path)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
