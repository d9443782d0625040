"""Previews of runs as data URIs, small enough for one page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TypedDict

import numpy as np
from PIL import Image

from losspool.lab.comparison import evenly, image_names, predicted_steps, read_palette, read_picture
from losspool.segmentation.base import UserError, say
from losspool.segmentation.data import Pixels
from losspool.segmentation.prediction import heat_image
from losspool.segmentation.training import WEIGHT_UNIT

RUNS = 8
"""The most runs that show pictures: those of a grid of 40 would make a page that no browser opens."""
STEPS = 16
"""The most steps of a run."""
WIDTH = 640
"""Pixels; wider pictures are scaled down."""
LEAST_TOP = 2.0
"""The colour scale of the weights reaches at least this far, so that the plain mean's 1 is not at its end."""


class FrameData(TypedDict):
    step: int
    prediction: int
    """An index into ``pictures``, like the others below."""
    weights: int | None


class ImageData(TypedDict):
    name: str
    image: int | None
    label: int | None
    frames: list[FrameData]
    """By step."""


class RunPreviews(TypedDict):
    run: int
    """An index into the page's list of runs."""
    images: list[ImageData]


class ScaleData(TypedDict):
    """The colours of the weight maps, which all share one scale."""

    top: float
    """The weight at the bright end, as a multiple of the plain mean's."""
    open: bool
    """Whether the bright end also stands for larger weights."""
    colors: list[str]
    """From weight 0 to ``top``, evenly."""


class PreviewData(TypedDict):
    pictures: list[str]
    """data: URIs without duplicates: the runs of a comparison share images and labels."""
    runs: list[RunPreviews]
    left_out: int
    """The number of runs whose previews are not shown, because there are too many."""
    scale: ScaleData


def preview_data(runs: Sequence[tuple[int, Path]], void: tuple[int, int, int]) -> PreviewData:
    """Previews of runs, each given by its index and its folder of previews. Runs without any are skipped.

    ``void`` is the colour of void.
    """
    found = [(place, folder, _frames(folder)) for place, folder in runs if folder.is_dir()]
    found = [entry for entry in found if entry[2]]
    kept = found[:RUNS]
    grey = max((_brightest(path) for _, folder, frames in kept for path in _weight_files(folder, frames)), default=0)
    pool, top = _Pool(void), max(grey / WEIGHT_UNIT, LEAST_TOP)
    shown: list[RunPreviews] = [
        {"run": place, "images": _images(pool, folder, frames, top)} for place, folder, frames in kept
    ]
    stops = _viridis(np.linspace(0, top, 17), top)
    return {
        "pictures": list(pool.places),
        "runs": shown,
        "left_out": len(found) - len(kept),
        "scale": {
            "top": top,
            "open": grey == 255,
            "colors": ["#{:02x}{:02x}{:02x}".format(*color) for color in stops.tolist()],
        },
    }


class _Pool:
    """Indices of pictures by their URI, and the colour of void in them."""

    def __init__(self, void: tuple[int, int, int]) -> None:
        self.void = void
        self.places: dict[str, int] = {}

    def add(self, image: Image.Image, kind: str) -> int:
        buffer = BytesIO()
        if kind == "jpeg":
            image.save(buffer, format="JPEG", quality=90)
        else:
            image.save(buffer, format="PNG", optimize=True)
        uri = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return self.places.setdefault(uri, len(self.places))


def _frames(folder: Path) -> dict[int, list[int]]:
    """The steps at which each numbered image is shown."""
    return {number: evenly(steps, STEPS) for number, steps in predicted_steps(folder).items()}


def _images(pool: _Pool, folder: Path, frames: dict[int, list[int]], top: float) -> list[ImageData]:
    names = image_names(folder)
    return [
        {
            "name": names[number] if number < len(names) else f"image {number}",
            "image": _photo(pool, folder / f"{number:02d}-image.png"),
            "label": _classes(pool, folder / f"{number:02d}-label.png"),
            "frames": [frame for step in steps if (frame := _frame(pool, folder, number, step, top))],
        }
        for number, steps in frames.items()
    ]


def _frame(pool: _Pool, folder: Path, number: int, step: int, top: float) -> FrameData | None:
    prediction, weights = _files(folder, number, step)
    shown = _classes(pool, prediction)
    return None if shown is None else {"step": step, "prediction": shown, "weights": _weights(pool, weights, top)}


def _files(folder: Path, number: int, step: int) -> tuple[Path, Path]:
    stem = f"{number:02d}-step-{step:07d}"
    return folder / f"{stem}.png", folder / f"{stem}-weights.png"


def _weight_files(folder: Path, frames: dict[int, list[int]]) -> Iterable[Path]:
    files = (_files(folder, number, step)[1] for number, steps in frames.items() for step in steps)
    return (path for path in files if path.is_file())


def _readable(path: Path, read: Callable[[Path], Image.Image] = read_picture) -> Image.Image | None:
    """None where the picture is missing or broken. A broken one is reported and does not stop the page."""
    if not path.is_file():
        return None
    try:
        return read(path)
    except UserError as error:
        say(f"left out: {error}")
        return None


def _photo(pool: _Pool, path: Path) -> int | None:
    found = _readable(path)
    if found is None:
        return None
    image = found.convert("RGB")
    # JPEG: a photograph as PNG is five times as large.
    return pool.add(image.resize(_size(image), Image.Resampling.LANCZOS), "jpeg")


def _classes(pool: _Pool, path: Path) -> int | None:
    """A palette picture, scaled without mixing the colours of classes."""
    image = _readable(path, partial(read_palette, void=pool.void))
    if image is None:
        return None
    small = image.resize(_size(image), Image.Resampling.NEAREST)
    colors = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    return pool.add(_compact(np.asarray(small), colors), "png")


def _weights(pool: _Pool, path: Path, top: float) -> int | None:
    """Grey levels, ``WEIGHT_UNIT`` per unit of weight, in the colours of viridis."""
    found = _readable(path)
    if found is None:
        return None
    image = found.convert("L")
    small = image.resize(_size(image), Image.Resampling.BOX)  # the mean: these are amounts
    return pool.add(_compact(np.asarray(small), _viridis(np.arange(256) / WEIGHT_UNIT, top)), "png")


def _compact(indices: Pixels, colors: Pixels) -> Image.Image:
    """A palette picture of only the colours that occur: with up to 16, a pixel takes four bits or fewer."""
    used, places = np.unique(indices, return_inverse=True)
    image = Image.fromarray(places.reshape(indices.shape).astype(np.uint8))
    image.putpalette(colors[used].ravel().tolist())
    return image


def _viridis(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], top: float) -> Pixels:
    """(N,) -> (N, 3): the colours of values."""
    row = values[None]
    return np.asarray(heat_image(row, top, np.zeros(row.shape, np.bool_)))[0]


def _brightest(path: Path) -> int:
    image = _readable(path)
    return 0 if image is None else int(np.asarray(image.convert("L")).max(initial=0))


def _size(image: Image.Image) -> tuple[int, int]:
    width = min(image.width, WIDTH)
    return width, max(round(image.height * width / image.width), 1)
