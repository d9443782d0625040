"""Made-up downloads of five kinds, whose classes are easy to tell apart: a dark ground, a large square, a bar."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from small_data import save

SIZE = (64, 96)
COLORS = np.array([[40, 60, 50], [200, 80, 60], [70, 110, 220]])
"""Of the pixels of each class, with noise around them."""
COUNT = 15


def scene(seed: int, size: tuple[int, int] = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """An image and its classes 0, 1 and 2."""
    random = np.random.default_rng(seed)
    height, width = size
    classes = np.zeros(size, np.uint8)
    row, column = random.integers(4, height // 2), random.integers(4, width // 2)
    classes[row : row + 22, column : column + 26] = 1
    bar = random.integers(2, width - 12)
    classes[:, bar : bar + 9] = 2
    image = COLORS[classes] + random.normal(0, 12, (*size, 3))
    return image.clip(0, 255).astype(np.uint8), classes


def colour_layout(root: Path) -> Path:
    """CamVid's as on Kaggle: ``train``, ``train_labels`` with ``_L.png``, ``class_dict.csv``."""
    colors = {"Ground": (64, 0, 64), "Thing": (192, 0, 128), "Bar": (0, 128, 64), "Void": (0, 0, 0)}
    rows = [f"{name},{','.join(map(str, color))}" for name, color in colors.items()]
    root.mkdir(parents=True)
    (root / "class_dict.csv").write_text("\n".join(["name,r,g,b", *rows]) + "\n")
    palette = np.array(list(colors.values()), np.uint8)
    for split, seeds in (("train", range(12)), ("val", range(12, 16))):
        for seed in seeds:
            image, classes = scene(seed)
            classes[:2] = 3
            save(root / split / f"0001TP_{seed:04}.png", image)
            save(root / f"{split}_labels" / f"0001TP_{seed:04}_L.png", palette[classes])
    return root


def mask_layout(root: Path) -> Path:
    """``images`` and ``masks`` of 0 and 255, without splits."""
    for seed in range(COUNT):
        image, classes = scene(seed)
        save(root / "images" / f"{seed}.jpg", image, quality=95)
        save(root / "masks" / f"{seed}.png", np.where(classes == 1, 255, 0))
    return root


def coco_layout(root: Path) -> Path:
    """One JSON file with polygons and run lengths."""
    images, annotations = [], []
    for seed in range(COUNT):
        image, classes = scene(seed)
        save(root / "images" / f"{seed}.png", image)
        images.append({"id": seed, "file_name": f"{seed}.png", "height": SIZE[0], "width": SIZE[1]})
        rows, columns = np.nonzero(classes == 1)
        top, left, bottom, right = (
            int(each) for each in (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
        )
        polygon = [left, top, right, top, right, bottom, left, bottom]
        thing = {"image_id": seed, "category_id": 7, "segmentation": [polygon], "area": len(rows), "iscrowd": 0}
        mask = {"size": list(SIZE), "counts": run_lengths(classes == 2)}
        bar = {"image_id": seed, "category_id": 3, "segmentation": mask, "area": 1, "iscrowd": 1}
        annotations += [{"id": 2 * seed, **thing}, {"id": 2 * seed + 1, **bar}]
    categories = [{"id": 7, "name": "thing"}, {"id": 3, "name": "bar"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(content))
    return root


def run_lengths(mask: np.ndarray) -> list[int]:
    flat = mask.T.ravel()
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()
    return [0, *runs] if flat[0] else runs


def grey_layout(root: Path) -> Path:
    """12-bit greys in PNGs of 16 bits, with index masks that end in ``_mask``."""
    levels = np.array([300, 1900, 3600])
    for seed in range(COUNT):
        _, classes = scene(seed)
        grey = levels[classes] + np.random.default_rng(seed).normal(0, 150, SIZE)
        (root / "scans").mkdir(parents=True, exist_ok=True)
        Image.fromarray(grey.clip(0, 4095).astype(np.uint16)).save(root / "scans" / f"p{seed // 3}_{seed}.png")
        save(root / "scans" / f"p{seed // 3}_{seed}_mask.png", classes)
    return root


def phone_layout(root: Path) -> Path:
    """``train/images`` and ``train/masks``: photos stored sideways with an EXIF orientation, masks drawn upright."""
    turns = {1: 0, 6: 1, 3: 2, 8: -1}  # the quarter turns to the left that make the stored image of an upright one
    for split, seeds in (("train", range(12)), ("validation", range(12, 16))):
        for seed in seeds:
            image, classes = scene(seed)
            orientation = list(turns)[seed % 4]
            exif = Image.Exif()
            exif[0x0112] = orientation
            stored = np.rot90(image, turns[orientation])
            save(root / split / "images" / f"IMG_{seed}.jpg", stored, quality=95, exif=exif)
            save(root / split / "masks" / f"IMG_{seed}.png", classes)
    return root


DOWNLOADS = {
    "colour labels": colour_layout,
    "0/255 masks": mask_layout,
    "COCO": coco_layout,
    "12-bit greys": grey_layout,
    "phone photos": phone_layout,
}
