"""PASCAL VOC 2012 in its original layout, with the augmented training set if prepared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from losspool.segmentation.base import BrokenFileError, UserError, in_threads, plain, replacing, track, writing
from losspool.segmentation.data.files.file_dataset import FileDataset, Pair, existing_folder, read_list
from losspool.segmentation.data.files.images import read_values, size_of
from losspool.segmentation.data.files.labels import contiguous
from losspool.segmentation.data.files.palette import voc_color
from losspool.segmentation.data.protocol import ClassInfo, Pixels

AUGMENTED = "trainaug"
LISTS = "ImageSets/Segmentation"

_NAMES = ["background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"]
_NAMES += ["diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"]


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


VOC_AUGMENTED_IMAGES = 10_582
"""Number of images in the standard augmented training set, which the paper uses too."""
_PALETTE = [channel for index in range(256) for channel in voc_color(index)]


@dataclass(frozen=True)
class Prepared:
    folder: Path
    list_file: Path
    images: int
    from_sbd: int


def report_prepared_voc(voc: Path, sbd: Path) -> None:
    """``losspool data prepare voc``: :func:`prepare_voc`, and print what was built."""
    done = prepare_voc(voc, sbd)
    print(plain(f"{done.list_file}: {done.images} images, {done.from_sbd} of them with SBD labels"))
    if done.images != VOC_AUGMENTED_IMAGES:
        print(f"The complete set has {VOC_AUGMENTED_IMAGES} images: the VOC or the SBD folder is incomplete.")


def prepare_voc(voc: Path, sbd: Path) -> Prepared:
    """Write SegmentationClassAug and the list ``trainaug.txt``.

    The list contains VOC's train images and all SBD images, except VOC's val images. Labels come
    from VOC if available, because its outlines are finer, else from SBD. The list is written last,
    so that an incomplete folder is never mistaken for a complete one.
    """
    folder = voc_folder(existing_folder(voc, "the folder of VOC"))
    source = _sbd_folder(existing_folder(sbd, "the folder of SBD"))
    train, val = (read_list(folder / LISTS / f"{split}.txt") for split in ("train", "val"))
    of_sbd = {name for split in ("train", "val") for name in read_list(source / f"{split}.txt")}
    names = sorted((of_sbd | set(train)) - set(val))
    own = set(train)
    target = folder / "SegmentationClassAug"
    list_file = folder / LISTS / f"{AUGMENTED}.txt"
    with writing(target):
        target.mkdir(exist_ok=True)
        list_file.unlink(missing_ok=True)

    def write(name: str) -> None:
        path = folder / "SegmentationClass" / f"{name}.png" if name in own else source / "cls" / f"{name}.mat"
        label = np.asarray(read_values(path), np.uint8) if name in own else _read_mat(path)
        if label.shape != size_of(folder / "JPEGImages" / f"{name}.jpg"):
            raise BrokenFileError(path, "its size differs from the image's")
        image = Image.fromarray(label)
        image.putpalette(_PALETTE)
        with writing(target / f"{name}.png"):
            image.save(target / f"{name}.png")

    for _ in track(in_threads(write, names), len(names), "Writing SegmentationClassAug"):
        pass
    with replacing(list_file) as partial:
        partial.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return Prepared(target, list_file, len(names), sum(name not in own for name in names))


def _sbd_folder(root: Path) -> Path:
    for folder in (root, root / "dataset", root / "benchmark_RELEASE" / "dataset"):
        if (folder / "cls").is_dir():
            return folder
    raise UserError(f"{root}: neither this folder nor benchmark_RELEASE/dataset below it holds SBD's folder 'cls'")


def _read_mat(path: Path) -> Pixels:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise UserError("reading SBD's .mat files needs scipy: pip install 'losspool[voc]'") from None
    if not path.exists():
        raise BrokenFileError(path, "the file does not exist")
    try:
        label = np.asarray(loadmat(path)["GTcls"]["Segmentation"][0, 0])
    except Exception as error:  # scipy's reader raises all kinds of errors on damaged files
        raise BrokenFileError(path, f"not an SBD label file ({error})") from None
    if label.ndim != 2 or label.dtype != np.uint8 or ((label >= len(CLASSES)) & (label != 255)).any():
        raise BrokenFileError(path, "GTcls.Segmentation is not a VOC label image")
    return label
