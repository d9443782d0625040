"""Turn a download into the layout of ``folder``. Nothing in the source is changed."""

from __future__ import annotations

import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import BrokenFileError, UserError, in_threads, track, writing
from losspool.segmentation.data.files.file_dataset import existing_folder
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.intensity import found_intensity
from losspool.segmentation.data.importing.class_lists import (
    ClassList,
    SourceClass,
    find_class_list,
    infer_classes,
    read_class_list,
    tally,
    with_values,
)
from losspool.segmentation.data.importing.coco import CocoImage, damaged_json, find_coco
from losspool.segmentation.data.importing.convert import Converter, Item, Unknown, drawn_on_stored, label_values
from losspool.segmentation.data.importing.layouts import find_layout
from losspool.segmentation.data.importing.splitting import Splitting, divide


@dataclass(frozen=True)
class ImportOptions:
    """What the user may say about a source."""

    classes: Path | None = None
    images: str | None = None
    labels: str | None = None
    tolerance: float = 0.0
    copy: bool = False
    labels_stored: bool | None = None
    """Whether labels were drawn on the stored pixels of images with an EXIF orientation (default: as sizes show it)."""
    splitting: Splitting = field(default_factory=Splitting)


@dataclass
class Imported:
    """What was imported, and what was noticed."""

    layout: str
    classes: ClassList
    splits: dict[str, list[str]] = field(default_factory=dict)
    """Names by split."""
    pixels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """(256,) by split: pixels per label."""
    unknown: list[Unknown] = field(default_factory=list)
    faults: list[UserError] = field(default_factory=list)
    shapeless: int = 0
    """COCO objects without a segmentation, which were left out."""
    unlabelled: int = 0
    """Images without a label that were left out."""
    unlisted: int = 0
    """Images that no list names."""
    empty: tuple[str, ...] = ()
    """Splits of which no image could be imported."""
    oriented: int = 0
    """Images with an EXIF orientation."""
    turned: int = 0
    """Labels drawn on the stored pixels."""
    assumed: int = 0
    """Labels whose size does not show their orientation; assumed upright."""


def import_data(source: Path, dest: Path, options: ImportOptions) -> Imported:
    """Write ``images``, ``labels`` and ``classes.yaml`` to a new folder."""
    if source.is_file():
        raise UserError(f"{source}: the source must be a folder; name the one that holds this file and the images")
    existing_folder(source, "the source")
    if not 0 <= options.tolerance < math.inf:
        raise UserError(f"--tolerance must be a distance of at least 0, got {options.tolerance:g}")
    _check_target(source, dest)
    found = _found(source, options)
    (items, absent), classes = _present(found.items), found.classes
    keyed = {_key(item): item for item in items}
    labelled = {key: item for key, item in keyed.items() if item.label is not None}
    if classes is None:
        classes = infer_classes(_tallied(list(labelled.values())), options.tolerance, source)
    elif classes.names_only and not options.tolerance:
        classes = with_values(classes, _tallied(list(labelled.values())))
    if options.splitting.group is not None:
        classes = replace(classes, groups=Groups(options.splitting.pattern))
    others = [key for key in keyed if key not in labelled]
    names = {key: item.split for key, item in labelled.items()}
    splits = divide(names, options.splitting, source, classes.groups, others)
    splits |= {key: "test" for key in others if keyed[key].split == "test"}  # published without labels
    kept = [(keyed[key], split) for key, split in splits.items()]
    if classes.intensity is None:
        classes = replace(classes, intensity=found_intensity([item.image for item, _ in kept]))
    done = Imported(found.layout, classes, shapeless=found.shapeless)
    done.unlabelled, done.unlisted = (sum(key not in splits for key in some) for some in (others, labelled))
    done.faults = [*absent, *(BrokenFileError(path, "this label has no image") for path in found.orphans)]
    with _new_folder(dest) as folder:
        _write_items(kept, folder, done, options)
        if not any(done.splits.values()):
            raise UserError(f"{source}: nothing could be imported; {done.faults[0]}")
        done.empty = tuple(sorted(set(splits.values()) - set(done.splits)))
        (folder / "classes.yaml").write_text(classes.to_yaml(), encoding="utf-8")
    return done


def source_layout(source: Path) -> str:
    """The layout that an import would find."""
    return _found(source, ImportOptions()).layout


def _check_target(source: Path, dest: Path) -> None:
    inner, outer = dest.resolve(), source.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise UserError(f"{dest}: the new folder must not lie in {source}, nor around it")
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise UserError(f"{dest}: exists and is not empty; name a new folder")


@contextmanager
def _new_folder(dest: Path) -> Iterator[Path]:
    """Yield a folder beside ``dest`` that becomes it in the end, so that ``dest`` is whole or absent."""
    partial = dest.with_name(f".{dest.name}.partial")
    with writing(dest):
        if partial.exists():
            shutil.rmtree(partial)  # left by an import that was killed
        partial.mkdir(parents=True)
        try:
            yield partial
            if dest.is_dir():
                dest.rmdir()
            partial.rename(dest)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@dataclass(frozen=True)
class _Found:
    """What a source holds."""

    layout: str
    """Human-readable description."""
    items: list[Item]
    classes: ClassList | None
    """None if no file names them."""
    orphans: Sequence[Path] = ()
    """Labels without an image."""
    shapeless: int = 0


def _found(source: Path, options: ImportOptions) -> _Found:
    coco = None if options.labels else find_coco(source)
    if coco is not None:
        names = ", ".join(path.relative_to(source).as_posix() for path in coco.files)
        for option, value in (("--classes", options.classes), ("--images", options.images)):
            if value is not None:
                raise UserError(f"{value}: leave {option} out, because {names} names the classes and the images")
        items = [
            Item(name, image.path, image, image.split)
            for name, image in zip(_coco_names(coco.images), coco.images, strict=True)
        ]
        _check_names(items)
        classes = ClassList(tuple(SourceClass(name, value) for name, value in coco.classes), origin=names)
        if (listed := source / "classes.yaml").is_file():  # what annotations do not say
            own = read_class_list(listed)
            classes = replace(classes, groups=own.groups, intensity=own.intensity)
        return _Found(f"COCO annotations: {names}", items, classes, shapeless=coco.shapeless)
    try:
        layout = find_layout(source, options.images, options.labels)
    except UserError as error:
        raise damaged_json(source) or error from None  # annotations, if there is no other layout
    items = [
        Item(pair.name, pair.image.path, pair.label.path if pair.label else None, pair.split) for pair in layout.pairs
    ]
    _check_names(items)
    return _Found(layout.pattern, items, find_class_list(source, options.classes), layout.orphans)


def _present(items: Sequence[Item]) -> tuple[list[Item], list[UserError]]:
    """The items whose image exists, and a fault for each other one. Only annotations name images that do not exist."""
    present, faults = [], list[UserError]()
    for item in items:
        if isinstance(item.label, CocoImage) and not os.path.lexists(item.image):
            problem = f"there is no image {item.image.name!r}, neither beside it nor elsewhere in the source"
            faults.append(BrokenFileError(item.label.source, problem))
        else:
            present.append(item)
    return present, faults


def _coco_names(images: Sequence[CocoImage]) -> list[str]:
    """The files' names, or their paths below the folder around all of them where two have the same name."""
    stems = Counter((image.split, image.path.stem) for image in images)
    if not images or max(stems.values()) == 1:
        return [image.path.stem for image in images]
    folder = os.path.commonpath([image.path.parent for image in images])
    return [image.path.relative_to(folder).with_suffix("").as_posix() for image in images]


def _key(item: Item) -> str:
    """A name that images of other splits do not have."""
    return f"{item.split}/{item.name}" if item.split else item.name


def _check_names(items: Sequence[Item]) -> None:
    known: dict[str, Item] = {}
    for item in items:
        other = known.setdefault(_key(item), item)
        if other is item:
            continue
        if other.image == item.image and isinstance(item.label, CocoImage) and isinstance(other.label, CocoImage):
            files = f"{other.label.source} and {item.label.source}"
            raise UserError(f"{item.image}: both {files} list it; keep one of them")
        raise UserError(f"{item.image}: {other.image} has the same name {item.name!r}; rename one of them")


def _tallied(items: Sequence[Item]) -> Counter[object]:
    def counted(item: Item) -> Counter[object]:
        try:
            return tally(label_values(item))
        except BrokenFileError:
            return Counter()  # reported when it is converted

    total: Counter[object] = Counter()
    for counts in track(in_threads(counted, items), len(items), "Reading labels"):
        total += counts
    return total


def _write_items(items: Sequence[tuple[Item, str]], folder: Path, done: Imported, options: ImportOptions) -> None:
    stored = options.labels_stored
    if stored is None:
        stored = drawn_on_stored([item for item, _ in items])
    convert = Converter(folder, done.classes, options.tolerance, options.copy, stored)
    for result in track(in_threads(lambda each: convert(*each), items), len(items), "Importing"):
        if isinstance(result, UserError):
            done.faults.append(result)
            continue
        done.splits.setdefault(result.split, []).append(result.item.name)
        done.oriented += result.orientation != 1
        done.turned += result.turned
        done.assumed += result.assumed
        if result.pixels is not None:
            done.pixels[result.split] = done.pixels.get(result.split, np.zeros(256, np.int64)) + result.pixels
        if result.unknown is not None:
            done.unknown.append(result.unknown)
