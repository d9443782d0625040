"""PASCAL VOC 2012 in its original layout, with the augmented training set if prepared."""

from __future__ import annotations

from pathlib import Path

from losspool.segmentation.base import UserError
from losspool.segmentation.data.files import FileDataset, Pair, read_list
from losspool.segmentation.data.labels import contiguous
from losspool.segmentation.data.protocol import ClassInfo

AUGMENTED = "trainaug"
LISTS = "ImageSets/Segmentation"

_NAMES = ["background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"]
_NAMES += ["diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"]


def voc_color(index: int) -> tuple[int, int, int]:
    """Return VOC's colour for a label: the bits of the index, spread over the channels from the highest bit down."""
    red = green = blue = 0
    for place in range(8):
        red |= (index >> 3 * place & 1) << 7 - place
        green |= (index >> 3 * place + 1 & 1) << 7 - place
        blue |= (index >> 3 * place + 2 & 1) << 7 - place
    return red, green, blue


CLASSES = tuple(ClassInfo(name, voc_color(index)) for index, name in enumerate(_NAMES))


def voc_folder(root: Path) -> Path:
    """Return the folder with JPEGImages: ``root`` itself, or VOCdevkit/VOC2012 below it."""
    for folder in (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012"):
        if (folder / "JPEGImages").is_dir():
            return folder
    raise UserError(f"{root}: neither this folder nor VOCdevkit/VOC2012 below it holds JPEGImages")


def splits(root: Path) -> list[str]:
    return sorted(path.stem for path in (voc_folder(root) / LISTS).glob("*.txt"))


def open_voc(root: Path, split: str) -> FileDataset:
    """Open the images of ``ImageSets/Segmentation/<split>.txt``; ``trainaug`` is the augmented training set.

    Labels come from SegmentationClass if available, because its outlines are finer and the
    benchmark is scored on it, else from SegmentationClassAug.
    """
    folder = voc_folder(root)
    path = folder / LISTS / f"{split}.txt"
    if split == AUGMENTED and not path.exists():
        raise UserError(f"{path}: the augmented list does not exist; create it with 'losspool data prepare voc'")
    pairs = []
    for name in read_list(path):
        candidates = (folder / kind / f"{name}.png" for kind in ("SegmentationClass", "SegmentationClassAug"))
        label = next((candidate for candidate in candidates if candidate.exists()), None)
        pairs.append(Pair(name, folder / "JPEGImages" / f"{name}.jpg", label))
    return FileDataset(f"voc/{split}", CLASSES, contiguous(len(CLASSES)), pairs)
