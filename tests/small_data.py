"""Small datasets on disk, in the layouts of the real ones."""

from pathlib import Path

import numpy as np
import yaml
from PIL import Image

CLASSES = [
    {"name": "soil", "id": 0, "color": [90, 60, 30]},
    {"name": "weed", "id": 2, "color": [255, 0, 0]},
    {"name": "crop plant", "id": 7, "color": [0, 160, 0]},
]
VOID = 255


def save(path: Path, values, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, np.uint8)).save(path, **options)
    return path


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write_classes(root: Path, content=None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    path = root / "classes.yaml"
    path.write_text(yaml.safe_dump(content or {"classes": CLASSES, "ignore": VOID}), encoding="utf-8")
    return path


def label_values(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Ids as the files of ``CLASSES`` hold them: mostly soil, a patch of crop, one pixel column of weed, some void."""
    values = np.zeros((height, width), np.uint8)
    random = np.random.default_rng(seed)
    row, column = (int(random.integers(0, extent // 2)) for extent in (height, width))
    values[row : row + height // 3, column : column + width // 3] = 7
    values[:, int(random.integers(0, width))] = 2
    values[-2:] = VOID
    return values


def write_folder(root: Path, split: str = "train", count: int = 6, size: tuple[int, int] = (40, 60)) -> Path:
    write_classes(root)
    for number in range(count):
        save(root / "images" / split / f"{number:03}.png", noise(*size, seed=number))
        save(root / "labels" / split / f"{number:03}.png", label_values(*size, seed=number))
    return root
