"""Cityscapes: ``leftImg8bit/<split>/<city>/*_leftImg8bit.png``, ``gtFine/<split>/<city>/*_gtFine_label*.png``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from losspool.segmentation.data.files.file_dataset import FileDataset, Pair, existing_folder
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.labels import LabelDecoder, contiguous
from losspool.segmentation.data.protocol import IGNORE, ClassInfo, Pixels

# The official table: the 19 evaluated classes, keyed by their id in labelIds files.
_TRAIN_CLASSES = {
    7: ClassInfo("road", (128, 64, 128)),
    8: ClassInfo("sidewalk", (244, 35, 232)),
    11: ClassInfo("building", (70, 70, 70)),
    12: ClassInfo("wall", (102, 102, 156)),
    13: ClassInfo("fence", (190, 153, 153)),
    17: ClassInfo("pole", (153, 153, 153)),
    19: ClassInfo("traffic light", (250, 170, 30)),
    20: ClassInfo("traffic sign", (220, 220, 0)),
    21: ClassInfo("vegetation", (107, 142, 35)),
    22: ClassInfo("terrain", (152, 251, 152)),
    23: ClassInfo("sky", (70, 130, 180)),
    24: ClassInfo("person", (220, 20, 60)),
    25: ClassInfo("rider", (255, 0, 0)),
    26: ClassInfo("car", (0, 0, 142)),
    27: ClassInfo("truck", (0, 0, 70)),
    28: ClassInfo("bus", (0, 60, 100)),
    31: ClassInfo("train", (0, 80, 100)),
    32: ClassInfo("motorcycle", (0, 0, 230)),
    33: ClassInfo("bicycle", (119, 11, 32)),
}
CLASSES = tuple(replace(info, id=value) for value, info in _TRAIN_CLASSES.items())
LABEL_IDS = tuple(_TRAIN_CLASSES)
"""The labelId of each class, as required for submissions."""

_LARGEST_ID = 33
_LICENCE_PLATE = 255  # its id is -1, stored as 255 in 8-bit files


class _CityscapesLabels:
    """Reads labelTrainIds files directly, and maps labelIds files by the official table."""

    def __init__(self) -> None:
        ids = dict.fromkeys((*range(_LARGEST_ID + 1), _LICENCE_PLATE), IGNORE)
        self._label_ids = LabelDecoder({**ids, **{value: label for label, value in enumerate(LABEL_IDS)}})
        self._train_ids = contiguous(len(CLASSES))
        self.key = "cityscapes"

    def read(self, path: Path) -> Pixels:
        return (self._train_ids if path.stem.endswith("labelTrainIds") else self._label_ids).read(path)


def splits(root: Path) -> list[str]:
    return [split for split in ("train", "val", "test") if (root / "leftImg8bit" / split).is_dir()]


def open_cityscapes(root: Path, split: str) -> FileDataset:
    """Open a split with fine annotations. Prefers an image's labelTrainIds file over its labelIds file."""
    images = existing_folder(root / "leftImg8bit" / split, "the split's folder of images")
    labels = root / "gtFine" / split
    pairs = []
    for image in sorted(images.glob("*/*_leftImg8bit.png")):
        name = image.relative_to(images).as_posix().removesuffix("_leftImg8bit.png")
        candidates = (labels / f"{name}_gtFine_label{kind}.png" for kind in ("TrainIds", "Ids"))
        pairs.append(Pair(name, image, next((path for path in candidates if path.exists()), None)))
    known = {pair.name for pair in pairs}
    orphans = [
        path
        for path in sorted(labels.glob("*/*_gtFine_labelIds.png"))
        if path.relative_to(labels).as_posix().removesuffix("_gtFine_labelIds.png") not in known
    ]
    return FileDataset(f"cityscapes/{split}", CLASSES, _CityscapesLabels(), pairs, orphans, groups=Groups(video=True))
