"""Which images to predict: a file, a folder of them, or images of the run's own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import exists, isdir  # unlike pathlib's they say no of what cannot be a path
from pathlib import Path

from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.data import SUFFIXES, Dataset, FileDataset, Pixels, images_below, read_image, read_pair


@dataclass(frozen=True)
class Source:
    """An image to predict."""

    name: str
    """Its path below the folder it was found in, without suffix."""
    read: Callable[[], tuple[Image.Image, Pixels | None]]
    """The image, and its label if that was asked for."""
    path: Path | None = None
    """Of a file: nothing is ever written there."""
    seed: int = 0
    """For a loss that draws pixels."""


def of_files(path: Path, out: Path) -> list[Source]:
    """The file, or every image below the folder but for what lies in ``out``, where earlier predictions are."""
    if isdir(path):
        root, folder = path.resolve(), out.resolve()
        if root == folder:
            raise UserError(f"{out}: predictions must go to another folder than the images are in")
        found = images_below(path)
        if root in folder.parents:
            found = {name: each for name, each in found.items() if folder not in (root / name).parents}
        if not found:
            raise UserError(f"{path}: no images found ({', '.join(SUFFIXES)})")
        return [Source(name, partial(_unlabelled, each), each) for name, each in found.items()]
    if not exists(path):
        raise UserError(f"{path}: there is no such image or folder")
    return [Source(path.stem, partial(_unlabelled, path), path)]


def of_split(dataset: Dataset, names: Sequence[str], labelled: bool) -> list[Source]:
    """The images of a split by name, all of them if none is named."""
    places = {name: index for index, name in enumerate(dataset.names)}
    for name in names:
        if name not in places:
            raise UserError(f"{dataset.name}: there is no image {name!r}; a name is such as {dataset.names[0]!r}")
    return [_of_dataset(dataset, places[name], labelled) for name in dict.fromkeys(names or dataset.names)]


def with_labels(sources: Iterable[Source], datasets: Sequence[Dataset]) -> list[Source]:
    """Files that are images of these, with the labels they have there."""
    known: dict[Path, tuple[Dataset, int]] = {}
    for dataset in datasets:
        if isinstance(dataset, FileDataset):
            known |= {pair.image.resolve(): (dataset, index) for index, pair in enumerate(dataset.pairs)}
    found = []
    for source in sources:
        place = known.get(source.path.resolve()) if source.path else None
        if place is None:
            raise UserError(
                f"{source.path}: not in {' and '.join(each.name for each in datasets)}, so it has no label; "
                f"name an image of its data with --split and --name"
            )
        dataset, index = place
        found.append(Source(source.name, partial(read_pair, dataset, index), source.path, index))
    return found


def _of_dataset(dataset: Dataset, index: int, labelled: bool) -> Source:
    path = dataset.pairs[index].image if isinstance(dataset, FileDataset) else None
    read = partial(read_pair, dataset, index) if labelled else partial(_image_of, dataset, index)
    return Source(dataset.names[index], read, path, index)


def _unlabelled(path: Path) -> tuple[Image.Image, None]:
    return read_image(path), None


def _image_of(dataset: Dataset, index: int) -> tuple[Image.Image, None]:
    return dataset.image(index), None
