"""Find which files of a folder are images, which are their labels, and which split they belong to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath

from losspool.segmentation.base import UserError, counted
from losspool.segmentation.data.files.file_dataset import existing_folder, unread_files, walk

_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_SPLITS |= {"test": "test", "testing": "test"}
_LABELS = {"mask", "masks", "label", "labels", "labelled", "labeled", "labeledapproved", "gt", "gtfine", "groundtruth"}
_LABELS |= {"annotation", "annotations", "annot", "segmentation", "segmentations", "segmentationclass", "seg"}
_LABELS |= {"segmentationclassaug"}
_IMAGES = {"image", "images", "img", "imgs", "jpegimages", "leftimg", "photo", "photos", "rgb", "frames", "raw"}
_FILLERS = {"full", "data", "dataset", "bit", "png", "jpg", "and", "ground", "truth", "stillsraw"}

_LABEL_ENDING = re.compile(r"_L$|[_-](?i:masks?|labels?|gt|seg|segmentation|annotation|(gtFine_)?label(Train)?Ids)$")
_IMAGE_ENDING = re.compile(r"[_-](?i:leftImg8bit|image|img|im|rgb|sat)$")
_BY_PRODUCT = re.compile(r"_(gtFine|gtCoarse)_(color|instance(Train)?Ids)$")  # Cityscapes' other files

HINT = (
    "a label's folder is called masks, labels or annotations, or its name ends in _mask, _label, _gt or _L; "
    "name other folders with --images and --labels"
)


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, taken apart."""

    path: Path
    relative: PurePosixPath
    split: str | None
    rest: tuple[str, ...]
    """The folders that name neither a split nor a kind of file: cities, drives, patients."""
    is_label: bool

    @property
    def stem(self) -> str:
        return self.relative.stem

    @property
    def ending(self) -> str:
        """What the name has in addition to the name of the picture: ``_mask``."""
        found = (_LABEL_ENDING if self.is_label else _IMAGE_ENDING).search(self.stem)
        return found[0] if found else ""

    @property
    def picture(self) -> str:
        return self.stem.removesuffix(self.ending)


@dataclass(frozen=True)
class SourcePair:
    """An image of a source with its label file, which may be missing."""

    image: SourceFile
    label: SourceFile | None
    name: str
    """A name for both: the folders that say neither split nor kind, and the picture."""

    @property
    def split(self) -> str | None:
        return self.image.split or (self.label.split if self.label else None)


@dataclass(frozen=True)
class Layout:
    """What was found in a source."""

    pattern: str
    """Human-readable: ``<split>/images/*.jpg + <split>/masks/*_mask.png``."""
    pairs: tuple[SourcePair, ...]
    orphans: tuple[Path, ...]
    """Labels without an image."""


def find_layout(source: Path, images: str | None = None, labels: str | None = None) -> Layout:
    """Match the images below ``source`` with their labels, by folders and endings of names.

    ``images`` and ``labels`` name folders below the source, where the names do not say it.
    """
    files = _source_files(existing_folder(source, "the source"), images, labels)
    pictures, masks = ([each for each in files if each.is_label is wanted] for wanted in (False, True))
    unread = unread_files(source)
    if not masks:
        raise UserError(f"{source}: no label images found among {counted(len(files), 'image')}; {unread or HINT}")
    if not pictures:
        advice = unread or "name their folder with --images"
        raise UserError(f"{source}: no images found beside {counted(len(masks), 'label')}; {advice}")
    found, orphans = _matched(pictures, masks)
    pairs = tuple(SourcePair(each, found.get(each), _name(each, found.get(each))) for each in pictures)
    if not found:
        raise UserError(
            f"{source}: none of {len(pictures)} images such as {pictures[0].relative} has a label of its name, "
            f"nor any of {len(masks)} labels such as {masks[0].relative} an image; {unread or HINT}"
        )
    return Layout(_pattern(pairs), pairs, tuple(each.path for each in orphans))


def words(name: str) -> list[str]:
    """The words of a file's or folder's name, without digits. SegNet's ``trainannot`` is two words."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])annot\b", " annot", name.lower()))


def split_of(name: str) -> str | None:
    """The split that a name speaks of: ``train`` for ``instances_train2017``."""
    return next((_SPLITS[word] for word in words(name) if word in _SPLITS), None)


def _source_files(source: Path, images: str | None, labels: str | None) -> list[SourceFile]:
    files = []
    for path in walk(source):
        relative = PurePosixPath(path.relative_to(source).as_posix())
        if not _BY_PRODUCT.search(relative.stem):
            files.append(_taken_apart(path, relative))
    levels = zip(*(each.rest for each in files), strict=False)
    common = len(list(takewhile(lambda parts: len(set(parts)) == 1, levels)))  # folders around everything
    files = [replace(each, rest=each.rest[common:]) for each in files]
    for option, folder in (("--images", images), ("--labels", labels)):
        if folder is not None and not any(_below(each, folder) for each in files):
            raise UserError(f"{source / folder}: {option} names a folder without images")
    if labels is not None:
        files = [replace(each, is_label=_below(each, labels)) for each in files]
    elif images is not None:
        files = [replace(each, is_label=not _below(each, images)) for each in files]
    elif not any(each.is_label for each in files):  # no folder of labels: they lie beside the images
        files = [replace(each, is_label=_LABEL_ENDING.search(each.stem) is not None) for each in files]
    if images is not None:
        files = [each for each in files if each.is_label or _below(each, images)]
    return _without_train_ids(files)


def _below(file: SourceFile, folder: str) -> bool:
    return PurePosixPath(folder) in file.relative.parents


def in_label_folder(relative: PurePosixPath) -> bool:
    """Whether a folder above a file is one of labels, by its name."""
    return _taken_apart(Path(relative), relative).is_label


def without_label_ending(name: str) -> str:
    """The name of the image that a label beside it belongs to: ``a/0`` for ``a/0_mask``."""
    return _LABEL_ENDING.sub("", name)


def _taken_apart(path: Path, relative: PurePosixPath) -> SourceFile:
    split, is_label, rest = None, False, []
    for part in relative.parts[:-1]:
        found = set(words(part))
        if found and found <= _SPLITS.keys() | _LABELS | _IMAGES | _FILLERS:
            split = split or split_of(part)
            is_label = is_label or bool(found & _LABELS) or {"ground", "truth"} <= found
        else:
            rest.append(part)
    return SourceFile(path, relative, split, tuple(rest), is_label)


def _without_train_ids(files: list[SourceFile]) -> list[SourceFile]:
    """Cityscapes has two label files per image; labelIds hold more."""
    ids = {each.relative.with_name(each.stem) for each in files if each.stem.endswith("_labelIds")}
    return [
        each
        for each in files
        if each.relative.with_name(each.stem.replace("TrainIds", "Ids")) not in ids
        or not each.stem.endswith("TrainIds")
    ]


_Key = Callable[[SourceFile], Hashable]
_KEYS: tuple[_Key, ...] = (
    lambda file: (file.split, file.rest, file.stem),
    lambda file: (file.split, file.rest, file.picture),
    lambda file: (file.split, file.stem),
    lambda file: (file.split, file.picture),
    lambda file: file.stem,
    lambda file: file.picture,
)
"""What an image and its label may have in common, the strictest first."""


def _matched(
    images: Iterable[SourceFile], labels: Iterable[SourceFile]
) -> tuple[dict[SourceFile, SourceFile], list[SourceFile]]:
    """Labels by image, and the labels that are left over. A match must be the only one by its key."""
    found: dict[SourceFile, SourceFile] = {}
    free, left = list(images), list(labels)
    shared = {file.rest for file in free} & {file.rest for file in left} - {()}
    for key in _KEYS:
        by_key = {kind: _by_key(files, key) for kind, files in (("image", free), ("label", left))}
        for value, some in by_key["image"].items():
            others = by_key["label"].get(value, [])
            if len(some) == 1 and len(others) == 1 and not _apart(some[0], others[0], shared):
                found[some[0]] = others[0]
        taken = set(found.values())
        free, left = [each for each in free if each not in found], [each for each in left if each not in taken]
    return found, left


def _apart(image: SourceFile, label: SourceFile, shared: Collection[tuple[str, ...]]) -> bool:
    """Whether two files belong to different splits or folders (of patients, drives), so that each lacks its partner.

    Folders count where images and labels have some in ``shared``; elsewhere they may have names of their own.
    """
    if image.split and label.split and image.split != label.split:
        return True
    return bool(image.rest and label.rest and image.rest != label.rest and {image.rest, label.rest} & set(shared))


def _by_key(files: Iterable[SourceFile], key: _Key) -> dict[Hashable, list[SourceFile]]:
    groups: dict[Hashable, list[SourceFile]] = {}
    for file in files:
        groups.setdefault(key(file), []).append(file)
    return groups


def _name(image: SourceFile, label: SourceFile | None) -> str:
    stem = image.stem if label is None or label.stem == image.stem else image.picture
    return "/".join((*image.rest, stem))


def _pattern(pairs: Iterable[SourcePair]) -> str:
    """The most common form of a pair."""
    forms = Counter((_form(pair.image), _form(pair.label)) for pair in pairs if pair.label is not None)
    image, label = forms.most_common(1)[0][0]
    return f"{image} + {label}"


def _form(file: SourceFile) -> str:
    parts = ["*" if part in file.rest else part for part in file.relative.parts[:-1]]
    if file.split:
        names = "|".join(sorted(_SPLITS, key=len, reverse=True))  # the longest first: training, not train
        parts = [re.sub(names, "<split>", part, flags=re.IGNORECASE) if split_of(part) else part for part in parts]
    return "/".join([*parts, f"*{file.ending}{file.relative.suffix}"])
