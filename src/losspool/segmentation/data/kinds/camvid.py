"""CamVid in the SegNet split: ``images/{train,val,test}/*.jpg`` and ``labels/{train,val,test}/*.png``."""

from __future__ import annotations

from pathlib import Path

from losspool.segmentation.data.files.file_dataset import FileDataset, existing_folder, images_below, matched
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.labels import contiguous
from losspool.segmentation.data.protocol import ClassInfo

VOID = 11
CLASSES = (
    ClassInfo("sky", (128, 128, 128)),
    ClassInfo("building", (128, 0, 0)),
    ClassInfo("pole", (192, 192, 128)),
    ClassInfo("road", (128, 64, 128)),
    ClassInfo("pavement", (0, 0, 192)),
    ClassInfo("tree", (128, 128, 0)),
    ClassInfo("sign", (192, 128, 128)),
    ClassInfo("fence", (64, 64, 128)),
    ClassInfo("car", (64, 0, 128)),
    ClassInfo("pedestrian", (64, 64, 0)),
    ClassInfo("bicyclist", (0, 128, 192)),
)


def splits(root: Path) -> list[str]:
    return [split for split in ("train", "val", "test") if (root / "images" / split).is_dir()]


def open_camvid(root: Path, split: str) -> FileDataset:
    """Open a split. Labels are index PNGs with values 0 … 10; 11 is void."""
    images = images_below(existing_folder(root / "images" / split, "the split's folder of images"))
    labels = images_below(existing_folder(root / "labels" / split, "the split's folder of labels"))
    decoder, video = contiguous(len(CLASSES), VOID), Groups(video=True)
    return FileDataset(f"camvid/{split}", CLASSES, decoder, *matched(images, labels), groups=video)
