"""Previews of runs as data URIs, small enough for one page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from PIL import Image

from losspool.lab.comparison import evenly, image_names, predicted_steps, read_palette, read_picture
from losspool.segmentation.base import UserError, say
from losspool.segmentation.data import IGNORE, Pixels
from losspool.segmentation.prediction import WEIGHT_UNIT, heat_image


class Detail(NamedTuple):
    """The most that is shown of the previews."""

    runs: int
    steps: int
    """Of each run."""
    width: int
    """Pixels; wider pictures are scaled down."""


DETAILS = (
    Detail(8, 16, 640),
    Detail(8, 8, 640),
    Detail(8, 4, 640),
    Detail(8, 4, 320),
    Detail(4, 4, 320),
    Detail(2, 4, 320),
    Detail(2, 2, 320),
    Detail(2, 1, 240),
)
"""The first whose pictures fit into the page is taken, or the last."""
LEAST_TOP = 2.0
"""The colour scale of the weights reaches at least this far, so that the plain mean's 1 is not at its end."""
_OVERHEAD = 60
"""Bytes that a picture takes beside its URI: quotes, its step and its indices."""


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


class _FullError(Exception):
    """The pictures do not fit into the page."""


def preview_data(runs: Sequence[tuple[int, Path]], void: tuple[int, int, int], room: int) -> PreviewData:
    """Previews of runs, each given by its index and its folder of previews, in as much detail as ``room`` bytes allow.

    Runs without previews are skipped. Where there is little room the last runs are left out. ``void`` is the colour
    of void.
    """
    found = [(place, folder) for place, folder in runs if predicted_steps(folder)]
    painter = _Painter(void)
    *larger, smallest = DETAILS
    for detail in larger:
        with suppress(_FullError):
            return _previews(found, painter, detail, room)
    return _previews(found, painter, smallest, None)


def _previews(found: Sequence[tuple[int, Path]], painter: _Painter, detail: Detail, room: int | None) -> PreviewData:
    kept = [(place, folder, _frames(folder, detail.steps)) for place, folder in found[: detail.runs]]
    files = [path for _, folder, frames in kept for path in _weight_files(folder, frames)]
    grey = max(map(painter.brightest, files), default=0)
    top = max(grey / WEIGHT_UNIT, LEAST_TOP)
    pool = _Pool(painter, detail.width, top, room)
    shown: list[RunPreviews] = [
        {"run": place, "images": _images(pool, folder, _richest_first(painter, folder, frames))}
        for place, folder, frames in kept
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


class _Painter:
    """Pictures as data: URIs; None where one is missing or broken. Each is encoded once, whatever is tried."""

    def __init__(self, void: tuple[int, int, int]) -> None:
        self._palette = partial(read_palette, void=void)
        self._report = cache(say)
        self.photo, self.classes = cache(self._photo), cache(self._classes)
        self.weights, self.brightest = cache(self._weights), cache(self._brightest)
        self.variety = cache(self._variety)

    def _photo(self, path: Path, width: int) -> str | None:
        found = self._readable(path)
        if found is None:
            return None
        image = found.convert("RGB")
        # JPEG: a photograph as PNG is five times as large.
        return _uri(image.resize(_size(image, width), Image.Resampling.LANCZOS), "jpeg", quality=85)

    def _classes(self, path: Path, width: int) -> str | None:
        """A palette picture, scaled without mixing the colours of classes."""
        image = self._readable(path, self._palette)
        if image is None:
            return None
        small = image.resize(_size(image, width), Image.Resampling.NEAREST)
        colors = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        return _uri(_compact(np.asarray(small), colors), "png", optimize=True)

    def _weights(self, path: Path, width: int, top: float) -> str | None:
        """Grey levels, ``WEIGHT_UNIT`` per unit of weight, in the colours of viridis."""
        found = self._readable(path)
        if found is None:
            return None
        image = found.convert("L")
        small = image.resize(_size(image, width), Image.Resampling.BOX)  # the mean: these are amounts
        colors = _viridis(np.arange(256) / WEIGHT_UNIT, top)
        return _uri(_compact(np.asarray(small), colors), "png", optimize=True)

    def _brightest(self, path: Path) -> int:
        image = self._readable(path)
        return 0 if image is None else int(np.asarray(image.convert("L")).max(initial=0))

    def _variety(self, path: Path) -> int:
        """The number of classes in a picture of labels, without void."""
        image = self._readable(path, self._palette)
        return 0 if image is None else len(set(np.unique(np.asarray(image))) - {IGNORE})

    def _readable(self, path: Path, read: Callable[[Path], Image.Image] = read_picture) -> Image.Image | None:
        """A broken picture is reported and does not stop the page."""
        if not path.is_file():
            return None
        try:
            return read(path)
        except UserError as error:
            self._report(f"left out: {error}")
            return None


class _Pool:
    """Indices of pictures by their URI."""

    def __init__(self, painter: _Painter, width: int, top: float, room: int | None) -> None:
        self.places: dict[str, int] = {}
        self._painter, self._width, self._top, self._room = painter, width, top, room

    def photo(self, path: Path) -> int | None:
        return self._add(self._painter.photo(path, self._width))

    def classes(self, path: Path) -> int | None:
        return self._add(self._painter.classes(path, self._width))

    def weights(self, path: Path) -> int | None:
        return self._add(self._painter.weights(path, self._width, self._top))

    def _add(self, uri: str | None) -> int | None:
        if uri is None:
            return None
        if uri not in self.places and self._room is not None:
            self._room -= len(uri) + _OVERHEAD
            if self._room < 0:
                raise _FullError
        return self.places.setdefault(uri, len(self.places))


def _uri(image: Image.Image, kind: str, **options: Any) -> str:
    buffer = BytesIO()
    image.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _frames(folder: Path, most: int) -> dict[int, list[int]]:
    """The steps at which each numbered image is shown; a single one is the last."""
    return {
        number: evenly(steps[-1:] if most == 1 else steps, most) for number, steps in predicted_steps(folder).items()
    }


def _richest_first(painter: _Painter, folder: Path, frames: dict[int, list[int]]) -> dict[int, list[int]]:
    """The images in the order of how many classes their labels have: the page opens with the first."""
    order = sorted(frames, key=lambda number: -painter.variety(folder / f"{number:02d}-label.png"))
    return {number: frames[number] for number in order}


def _images(pool: _Pool, folder: Path, frames: dict[int, list[int]]) -> list[ImageData]:
    names = image_names(folder)
    return [
        {
            "name": names[number] if number < len(names) else f"image {number}",
            "image": pool.photo(folder / f"{number:02d}-image.png"),
            "label": pool.classes(folder / f"{number:02d}-label.png"),
            "frames": [frame for step in steps if (frame := _frame(pool, folder, number, step))],
        }
        for number, steps in frames.items()
    ]


def _frame(pool: _Pool, folder: Path, number: int, step: int) -> FrameData | None:
    prediction, weights = _files(folder, number, step)
    shown = pool.classes(prediction)
    return None if shown is None else {"step": step, "prediction": shown, "weights": pool.weights(weights)}


def _files(folder: Path, number: int, step: int) -> tuple[Path, Path]:
    stem = f"{number:02d}-step-{step:07d}"
    return folder / f"{stem}.png", folder / f"{stem}-weights.png"


def _weight_files(folder: Path, frames: dict[int, list[int]]) -> Iterable[Path]:
    files = (_files(folder, number, step)[1] for number, steps in frames.items() for step in steps)
    return (path for path in files if path.is_file())


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


def _size(image: Image.Image, most: int) -> tuple[int, int]:
    width = min(image.width, most)
    return width, max(round(image.height * width / image.width), 1)
