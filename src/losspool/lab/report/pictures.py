"""The previews of runs as data URIs, small enough to be looked at in one page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TypedDict

import numpy as np
from PIL import Image

from losspool.segmentation.data.protocol import Pixels
from losspool.segmentation.errors import UserError
from losspool.segmentation.pictures import heat_image
from losspool.segmentation.previews import WEIGHT_UNIT

RUNS = 8
"""At most so many runs show their pictures: a grid of 40 would make a page that no browser opens."""
STEPS = 16
"""At most so many moments of a run."""
WIDTH = 640
"""Pixels; wider pictures are made smaller."""
LEAST_TOP = 2.0
"""The colour scale of the weights reaches at least this far, so that the plain mean's 1 is no extreme."""


class FrameData(TypedDict):
    step: int
    prediction: int
    """A place in ``pictures``, as are all that follow."""
    weights: int | None


class ImageData(TypedDict):
    name: str
    image: int | None
    label: int | None
    frames: list[FrameData]
    """By step."""


class RunPreviews(TypedDict):
    run: int
    """A place in the page's list of runs."""
    images: list[ImageData]


class ScaleData(TypedDict):
    """The colours of the weight maps, which all share one scale."""

    top: float
    """The weight at the bright end, in units of the plain mean's."""
    open: bool
    """Whether the bright end stands for larger weights too."""
    colors: list[str]
    """From weight 0 to ``top``, evenly."""


class PreviewData(TypedDict):
    pictures: list[str]
    """data: URIs, each once: the runs of a comparison share images and labels."""
    runs: list[RunPreviews]
    left_out: int
    """How many runs have previews that the page does not show, for their number."""
    scale: ScaleData


def preview_data(runs: Sequence[tuple[int, Path]]) -> PreviewData:
    """Of runs, each with its place and its folder of previews; those without any are passed over."""
    found = [(place, folder, _frames(folder)) for place, folder in runs if folder.is_dir()]
    found = [entry for entry in found if entry[2]]
    kept = found[:RUNS]
    grey = max((_brightest(path) for _, folder, frames in kept for path in _weight_files(folder, frames)), default=0)
    pool, top = _Pool(), max(grey / WEIGHT_UNIT, LEAST_TOP)
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


def evenly(items: Sequence[int], most: int) -> list[int]:
    """At most so many, spread evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[place] for place in np.linspace(0, len(items) - 1, most).round().astype(int)]


class _Pool:
    """Pictures by their URI, each with its place."""

    def __init__(self) -> None:
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
    """The steps that each numbered image was predicted at."""
    found: dict[int, list[int]] = {}
    for path in sorted(folder.glob("*-step-*.png")):
        if match := re.fullmatch(r"(\d{2,})-step-(\d{7,})", path.stem):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return {number: evenly(sorted(steps), STEPS) for number, steps in sorted(found.items())}


def _images(pool: _Pool, folder: Path, frames: dict[int, list[int]], top: float) -> list[ImageData]:
    names = _names(folder)
    return [
        {
            "name": names[number] if number < len(names) else f"image {number}",
            "image": _photo(pool, folder / f"{number:02d}-image.png"),
            "label": _label(pool, folder / f"{number:02d}-label.png"),
            "frames": [_frame(pool, folder, number, step, top) for step in steps],
        }
        for number, steps in frames.items()
    ]


def _frame(pool: _Pool, folder: Path, number: int, step: int, top: float) -> FrameData:
    prediction, weights = _files(folder, number, step)
    return {"step": step, "prediction": _classes(pool, prediction), "weights": _weights(pool, weights, top)}


def _files(folder: Path, number: int, step: int) -> tuple[Path, Path]:
    stem = f"{number:02d}-step-{step:07d}"
    return folder / f"{stem}.png", folder / f"{stem}-weights.png"


def _weight_files(folder: Path, frames: dict[int, list[int]]) -> Iterable[Path]:
    files = (_files(folder, number, step)[1] for number, steps in frames.items() for step in steps)
    return (path for path in files if path.is_file())


def _names(folder: Path) -> list[str]:
    path = folder / "names.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    return [str(name) for name in names] if isinstance(names, list) else []


def _photo(pool: _Pool, path: Path) -> int | None:
    if not path.is_file():
        return None
    image = _open(path).convert("RGB")
    # As JPEG: a photograph as PNG is five times as large.
    return pool.add(image.resize(_size(image), Image.Resampling.LANCZOS), "jpeg")


def _label(pool: _Pool, path: Path) -> int | None:
    return _classes(pool, path) if path.is_file() else None


def _classes(pool: _Pool, path: Path) -> int:
    """A palette picture: no colour may come about that is no class's."""
    image = _open(path)
    if image.mode != "P":
        raise UserError(f"{path}: is no palette picture")
    small = image.resize(_size(image), Image.Resampling.NEAREST)
    colors = np.zeros((256, 3), np.uint8)
    palette = np.array(small.getpalette("RGB"), np.uint8).reshape(-1, 3)
    colors[: len(palette)] = palette
    return pool.add(_compact(np.asarray(small), colors), "png")


def _weights(pool: _Pool, path: Path, top: float) -> int | None:
    """Grey levels, which count ``WEIGHT_UNIT`` per unit, in the colours of viridis."""
    if not path.is_file():
        return None
    image = _open(path).convert("L")
    small = image.resize(_size(image), Image.Resampling.BOX)  # the mean: these are amounts
    return pool.add(_compact(np.asarray(small), _viridis(np.arange(256) / WEIGHT_UNIT, top)), "png")


def _compact(indices: Pixels, colors: Pixels) -> Image.Image:
    """A palette picture of the colours that occur alone: with up to 16 a pixel takes four bits or fewer."""
    used, places = np.unique(indices, return_inverse=True)
    image = Image.fromarray(places.reshape(indices.shape).astype(np.uint8))
    image.putpalette(colors[used].ravel().tolist())
    return image


def _viridis(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], top: float) -> Pixels:
    """(N, 3): the colours of N values."""
    row = values[None]
    return np.asarray(heat_image(row, top, np.zeros(row.shape, np.bool_)))[0]


def _brightest(path: Path) -> int:
    return int(np.asarray(_open(path).convert("L")).max(initial=0))


def _size(image: Image.Image) -> tuple[int, int]:
    width = min(image.width, WIDTH)
    return width, max(round(image.height * width / image.width), 1)


def _open(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
