"""The images to predict: a file, a folder, or images of the run's own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import exists, isdir  # unlike pathlib's, they return False for an invalid path
from pathlib import Path, PurePosixPath

from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError, counted, say
from losspool.segmentation.data import (
    SUFFIXES,
    Dataset,
    HasFiles,
    Pixels,
    Reading,
    UnknownRangeError,
    images_below,
    in_label_folder,
    read_image,
    read_pair,
    unread_files,
    without_label_ending,
)


@dataclass(frozen=True)
class Source:
    """An image to predict."""

    name: str
    """Its path relative to the folder it was found in, without suffix."""
    read: Callable[[], tuple[Image.Image, Pixels | None]]
    """Reads the image, and its label if requested."""
    path: Path | None = None
    """The image file, which is never overwritten."""
    seed: int = 0
    """Seed for losses that sample pixels."""


def sources_of_files(path: Path, out: Path, reading: Reading) -> list[Source]:
    """The file, or all images below the folder except those in ``out``, which may hold earlier predictions."""
    if isdir(path):
        root, folder = path.resolve(), out.resolve()
        if root == folder:
            raise UserError(f"{out}: predictions cannot go to the folder of the images; pass another --out")
        found = images_below(path)
        if root in folder.parents:
            found = {name: each for name, each in found.items() if folder not in (root / name).parents}
        unread = unread_files(path)
        found = _without_labels(found, unread)
        if not found:
            raise UserError(f"{path}: no images found ({', '.join(SUFFIXES)}){'; ' * bool(unread)}{unread}")
        if unread:
            say(f"skipped: {unread}")
        return [Source(name, partial(_read_file, each, reading), each) for name, each in found.items()]
    if not exists(path):
        raise UserError(f"{path}: there is no such image or folder")
    return [Source(path.stem, partial(_read_file, path, reading), path)]


def _without_labels(found: dict[str, Path], unread: str) -> dict[str, Path]:
    """Leave out labels: those beside their images, and those in folders of labels if there are other images, or some
    that are not read."""
    alone = {
        name: path
        for name, path in found.items()
        if name == (image := without_label_ending(name)) or image not in found
    }
    if len(alone) < len(found):
        say(f"skipped: {counted(len(found) - len(alone), 'label')} beside their images")
    images = {name: path for name, path in alone.items() if not in_label_folder(PurePosixPath(name))}
    if not images and not unread:
        return alone
    if len(images) < len(alone):
        say(f"skipped: {counted(len(alone) - len(images), 'file')} in folders of labels")
    return images


def sources_of_split(dataset: Dataset, names: Sequence[str], labelled: bool) -> list[Source]:
    """The named images of a split, or all of them if ``names`` is empty."""
    places = {name: index for index, name in enumerate(dataset.names)}
    for name in names:
        if name not in places:
            raise UserError(f"{dataset.name}: there is no image {name!r}; names look like {dataset.names[0]!r}")
    return [_source_at(dataset, places[name], labelled) for name in dict.fromkeys(names or dataset.names)]


def with_labels(sources: Iterable[Source], datasets: Sequence[Dataset]) -> list[Source]:
    """Give each source the label that its file has in one of the datasets."""
    known: dict[Path, tuple[Dataset, int]] = {}
    for dataset in datasets:
        if isinstance(dataset, HasFiles):
            known |= {pair.image.resolve(): (dataset, index) for index, pair in enumerate(dataset.pairs)}
    found = []
    for source in sources:
        place = known.get(source.path.resolve()) if source.path else None
        if place is None:
            raise UserError(
                f"{source.path}: not in {' and '.join(each.name for each in datasets)}, so it has no label; "
                f"choose images of the run's data with --split and --name"
            )
        dataset, index = place
        found.append(Source(source.name, partial(read_pair, dataset, index), source.path, index))
    return found


def _source_at(dataset: Dataset, index: int, labelled: bool) -> Source:
    path = dataset.pairs[index].image if isinstance(dataset, HasFiles) else None
    read = partial(read_pair, dataset, index) if labelled else partial(_read_image_only, dataset, index)
    return Source(dataset.names[index], read, path, index)


def _read_file(path: Path, reading: Reading) -> tuple[Image.Image, None]:
    try:
        return read_image(path, reading), None
    except UnknownRangeError:
        problem = "the image has more than 8 bits, those that the run was trained on have 8; convert it to 8 bits"
        raise BrokenFileError(path, problem) from None


def _read_image_only(dataset: Dataset, index: int) -> tuple[Image.Image, None]:
    return dataset.image(index), None
