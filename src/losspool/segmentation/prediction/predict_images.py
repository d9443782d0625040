"""Predicts images and writes the predictions as PNG files to one folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from os.path import exists, isdir  # unlike pathlib's, they return False for an invalid path
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from losspool.segmentation.base import UserError, counted, in_threads, plain, say, track
from losspool.segmentation.data import CITYSCAPES_CLASSES, ClassInfo, Pixels, is_custom, report_lines
from losspool.segmentation.prediction.pictures import (
    cityscapes_image,
    heat_image,
    heat_overlay,
    ids_image,
    index_image,
    overlay_image,
    palette_image,
    save_png,
)
from losspool.segmentation.prediction.predictor import Predictor
from losspool.segmentation.prediction.sources import Source, sources_of_files, sources_of_split, with_labels
from losspool.segmentation.prediction.trained_run import TrainedRun, with_overrides
from losspool.segmentation.prediction.weight_maps import Weigher, WeightMap, weigher_of, weight_summary, weight_tables

SUFFIXES = {
    "index": "_index",
    "ids": "_ids",
    "palette": "_palette",
    "overlay": "_overlay",
    "cityscapes": "_labelIds",
}
"""Suffix of each format's file name. No suffix ends with another, so no two files share a name."""
_HEAT, _HEAT_OVERLAY = "_weights", "_weights-overlay"


def parse_formats(given: Sequence[str], classes: Sequence[ClassInfo], weights: bool) -> list[str]:
    """Parse the formats from options, each with one format or a comma-separated list."""
    formats = list(dict.fromkeys(part.strip() for text in given for part in text.split(",")))
    for name in formats:
        if name not in SUFFIXES:
            raise UserError(f"a format is one of {', '.join(SUFFIXES)}, got {name!r}")
    if "cityscapes" in formats:
        if [info.name for info in classes] != [info.name for info in CITYSCAPES_CLASSES]:
            raise UserError("the format 'cityscapes' needs a network of Cityscapes' 19 classes, got other classes")
        if len(formats) > 1 or weights:
            raise UserError("the format 'cityscapes' must be alone: the benchmark expects one file per image")
    return formats


def label_values(run: TrainedRun, classes: Sequence[ClassInfo]) -> list[int] | None:
    """The value of each class in the label files of the run's data; None if neither checkpoint nor data have it."""
    if is_custom(run.config.data.name) and any(info.id is None for info in classes):
        try:  # a checkpoint of version 0.1
            classes = run.dataset(run.config.data.train, tuple(classes)).classes
        except UserError:
            return None
    return [place if info.id is None else info.id for place, info in enumerate(classes)]


def predict_run(
    path: Path,
    checkpoint: str,
    out: Path,
    formats: Sequence[str] | None = None,
    *,
    source: Path | None = None,
    split: str | None = None,
    names: Sequence[str] | None = None,
    weights: bool = False,
    ids: bool | None = None,
    trusted: Collection[str] = (),
    **inference: Any,
) -> bool:
    """``losspool predict``. Returns whether every image could be read.

    Args:
        path: the run's folder.
        checkpoint: ``last``, ``best`` or a step.
        out: the output folder.
        formats: keys of ``SUFFIXES`` (default: palette and overlay, and ids of custom data).
        source: an image or a folder of images (default: images of the run's own data).
        split: split of the run's data (default: validation). With ``source``, the split with its labels.
        names: predict only these images of the split.
        weights: also write loss-weight maps; every image needs a label.
        ids: also write ids, or leave them out of the default.
        trusted: import paths of code that may run.
        inference: tiling, scales and flip; see :func:`with_overrides`.
    """
    run = TrainedRun.open(path, trusted)
    settings = with_overrides(run.config.evaluate, **inference)
    if source is None and split is None and not names:
        raise UserError("pass an image or a folder, or images of the run's own data with --split and --name")
    if source is not None and (names or (split is not None and not weights)):
        raise UserError(f"pass either {source}, or images of the run's own data with --split and --name")
    trained, data = run.load_one(checkpoint), run.config.data
    values = label_values(run, trained.classes)
    if ids is None:
        ids = not formats and is_custom(data.name) and values is not None
    kinds = parse_formats([*(formats or ["palette", "overlay"]), *(["ids"] if ids else [])], trained.classes, weights)
    if "ids" in kinds and values is None:
        raise UserError(
            f"{run.folder.path}: its checkpoint does not hold the label values, and its data cannot be read"
        )
    if source is None:
        sources = sources_of_split(run.dataset(run.split(split), trained.classes), names or [], weights)
    else:
        sources = sources_of_files(source, out, data.reading)
        if weights:
            splits = [split] if split else [each for each in (data.val, data.train) if each is not None]
            sources = with_labels(sources, [run.dataset(each, trained.classes) for each in splits])
    predict = trained.predictor(settings)
    weigh = weigher_of(run, predict, trained.step) if weights else None
    output = Console(highlight=False)

    def show(name: str, found: WeightMap) -> None:
        output.print(plain(weight_summary(name, found)), markup=False, soft_wrap=True)
        output.print(*weight_tables(found, trained.classes, output.width))
        output.print()

    faults = predict_images(predict, sources, out, kinds, trained.classes, weigh, show, values)
    if faults and len(sources) == 1:
        raise faults[0]
    for line in report_lines(faults, out / "faults.txt"):
        say(f"fault: {line}")
    count = len(sources) - len(faults)
    output.print(plain(f"{counted(count, 'image')} predicted: {out}"), markup=False, soft_wrap=True)
    return not faults


def predict_images(
    predict: Predictor,
    sources: Sequence[Source],
    out: Path,
    formats: Sequence[str],
    classes: Sequence[ClassInfo],
    weigh: Weigher | None = None,
    show: Callable[[str, WeightMap], None] = lambda name, found: None,
    values: Sequence[int] | None = None,
) -> list[UserError]:
    """Predict every image and write its files. Returns the error of each image that cannot be read.

    The format ids needs the classes' ``values``. With ``weigh``, ``show`` is called with the name and the weight map of
    each image.
    """
    suffixes = [SUFFIXES[name] for name in formats] + ([_HEAT, _HEAT_OVERLAY] if weigh else [])
    _check_targets(sources, out, suffixes)
    faults: list[UserError] = []
    read = track(in_threads(_read, sources, ahead=2), len(sources), "Predicting")
    for source, content in zip(sources, read, strict=True):
        if isinstance(content, UserError):
            faults.append(content)
            continue
        image, label = content
        found: WeightMap | None = None
        if weigh is None or label is None:
            labels = predict(image)
        else:
            labels, found = weigh.with_prediction(image, label, source.seed)
        for name in formats:
            picture = ids_image(labels, values or ()) if name == "ids" else _picture(name, image, labels, classes)
            save_png(picture, _target(out, source, SUFFIXES[name]))
        if found is not None:
            heat = heat_image(found.weights, found.top, found.void)
            save_png(heat, _target(out, source, _HEAT))
            save_png(heat_overlay(image, heat), _target(out, source, _HEAT_OVERLAY))
            show(source.name, found)
    return faults


def _read(source: Source) -> tuple[Image.Image, Pixels | None] | UserError:
    try:
        return source.read()
    except UserError as error:
        return error


def _picture(name: str, image: Image.Image, labels: Pixels, classes: Sequence[ClassInfo]) -> Image.Image:
    if name == "index":
        return index_image(labels)
    if name == "palette":
        return palette_image(labels, classes)
    return overlay_image(image, labels, classes) if name == "overlay" else cityscapes_image(labels)


def _target(out: Path, source: Source, suffix: str) -> Path:
    """The path of an output file, always inside ``out``, whatever the image's name and the links in ``out``."""
    path = out / f"{source.name}{suffix}.png"
    if not path.parent.resolve().is_relative_to(out.resolve()):
        raise UserError(f"{plain(source.name)}: its predictions would be outside {out}")
    return path


def _check_targets(sources: Sequence[Source], out: Path, suffixes: Sequence[str]) -> None:
    """Check before computing anything that every output file is inside ``out`` and none overwrites an image."""
    if exists(out) and not isdir(out):
        raise UserError(f"{out}: a file is in the way of the folder for the predictions")
    images = {source.path.resolve() for source in sources if source.path}
    for source in sources:
        for suffix in suffixes:
            path = _target(out, source, suffix)
            if path.parent.resolve() / path.name in images:
                raise UserError(f"{path}: a prediction would overwrite an image; pass another folder with --out")
