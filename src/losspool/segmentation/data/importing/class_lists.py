"""The classes of a source: from a file that names them, or from the values in its labels."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import UserError, yaml_line
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.labels import MOST_CLASSES, read_classes
from losspool.segmentation.data.files.palette import Color, free_color
from losspool.segmentation.data.protocol import IGNORE, Pixels

FILES = ("classes.yaml", "class_dict.csv", "label_colors.txt", "classes.txt")
"""Files in a source that name its classes."""
INFERRED = "the values in the labels"
BACKGROUND = "background"
_BLACK = (0, 0, 0)  # overlays leave an image as it is under a black class
_VOID = ("void", "ignore", "ignored", "unlabelled", "unlabeled", "unknown")
_ID_HEADERS = ("id", "index", "label", "value", "class_id")
_LARGEST_ID = 65535
_MOST_INFERRED = 64
_NOISE = 0.01  # with a tolerance, rarer values are not separate classes
_MANY_RARE = 8  # values
_LARGE_ID = 64  # ids of classes seldom go so far; shades of grey do
_MIXED = 16.0  # largest distance of a colour from the line between two others that it may be a mixture of
_SHADES = 48.0  # compression seldom moves a colour farther
_NEARLY_ALL = 0.97  # of the pixels: what a proposed tolerance must reach
_MOST_TRIED = 4 * _MOST_INFERRED
_FEW = 8  # values that a message lists


@dataclass(frozen=True)
class SourceClass:
    """A class and how the label files write it."""

    name: str
    id: int
    color: Color | None = None


@dataclass(frozen=True)
class ClassList:
    """The classes in order, and what is void."""

    classes: tuple[SourceClass, ...]
    void_ids: tuple[int, ...] = ()
    void_colors: tuple[Color, ...] = ()
    origin: str = ""
    """Where the list comes from, for the card."""
    by_color: bool = False
    """Whether the source names colours and no ids; then a palette image is read by its colours."""
    names_only: bool = False
    """Whether the source names neither ids nor colours; then the ids are the places in the list."""
    groups: Groups = field(default_factory=Groups)
    intensity: tuple[float, float] | None = None
    """The values that become black and white in images of more than 8 bits, if the source names them."""

    @property
    def void(self) -> int:
        """The value of void pixels in the labels that are written."""
        ids = {each.id for each in self.classes}
        return next(value for value in (*self.void_ids, *range(255, -1, -1)) if value not in ids)

    def to_yaml(self) -> str:
        """The content of ``classes.yaml``."""
        taken: list[Color] = [each.color for each in self.classes if each.color]
        lines = ["classes:"]
        for each in self.classes:
            color = each.color or (_BLACK if each.name == BACKGROUND and _BLACK not in taken else free_color(taken))
            taken.append(color)
            entry = {"name": each.name, "id": each.id, "color": list(color)}
            lines.append(f"  - {yaml_line(entry)}")
        lines.append(f"ignore: {self.void}")
        if self.intensity:
            lines.append(f"intensity: {yaml_line(self.intensity)}  # these values are black and white")
        if self.groups.value is not None:
            lines.append(yaml_line({"groups": self.groups.value})[1:-1])
        return "\n".join(lines) + "\n"


def read_class_list(path: Path) -> ClassList:
    """Read a ``classes.yaml``, a CSV of names and colours, or a text file of names, with or without colours."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return _from_yaml(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: the list of classes cannot be read ({problem})") from None
    rows = _rows(path, text)
    numbered = any(row.id is not None for row in rows)
    every = [SourceClass(row.name, place if row.id is None else row.id, row.color) for place, row in enumerate(rows)]
    void = [each for each in every if each.name.lower() in _VOID]
    classes = [each for each in every if each not in void]
    _check(path, classes)
    by_color = not numbered and any(each.color for each in classes)
    colors = tuple(each.color for each in void if each.color)
    names_only = not numbered and not any(each.color for each in every) and not void
    return ClassList(tuple(classes), tuple(each.id for each in void), colors, path.name, by_color, names_only)


def with_values(names: ClassList, counts: Counter[Any]) -> ClassList:
    """A list of names alone, with the values in the labels as ids if there are as many: 0 and 255 for two names."""
    values = sorted(counts) if not any(isinstance(value, tuple) for value in counts) else []
    if len(values) != len(names.classes):
        return names
    classes = (replace(each, id=value) for each, value in zip(names.classes, values, strict=True))
    return replace(names, classes=tuple(classes))


def _from_yaml(path: Path) -> ClassList:
    found = read_classes(path)
    ids = {label: value for value, label in found.decoder.values.items() if label != IGNORE}
    classes = tuple(SourceClass(info.name, ids[label], info.color) for label, info in enumerate(found.infos))
    void_ids = tuple(value for value, label in found.decoder.values.items() if label == IGNORE)
    void_colors = tuple(color for color, label in found.decoder.colors.items() if label == IGNORE)
    return ClassList(classes, void_ids, void_colors, path.name, groups=found.groups, intensity=found.intensity)


class _Row(NamedTuple):
    """A line of a class list."""

    name: str
    color: Color | None
    id: int | None


def _rows(path: Path, text: str) -> list[_Row]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if path.suffix.lower() != ".csv":
        return [_named(path, line.split(), number) for number, line in enumerate(lines, 1)]
    delimiter = max(",;\t", key=lines[0].count) if lines else ","
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    first, id_at = 1, None
    if rows and not any(cell.isdigit() for cell in rows[0]):  # the header: name,r,g,b
        header = [cell.lower() for cell in rows.pop(0)]
        first, id_at = 2, next((header.index(name) for name in _ID_HEADERS if name in header), None)
    return [_named(path, row, number, id_at) for number, row in enumerate(rows, first)]


def _named(path: Path, cells: Sequence[str], number: int, id_at: int | None = None) -> _Row:
    """A line with a name, perhaps an id (in its column, or in front), and perhaps three colours."""
    numbers = [int(cell) for cell in cells if cell.isdigit()]
    if id_at is None and len(numbers) in (1, 4) and cells[0].isdigit():
        id_at = 0
    own = int(cells[id_at]) if id_at is not None and id_at < len(cells) and cells[id_at].isdigit() else None
    rest = [cell for place, cell in enumerate(cells) if place != id_at]
    colors = [int(cell) for cell in rest if cell.isdigit()]
    name = " ".join(cell for cell in rest if not cell.isdigit())
    if not name or len(colors) not in (0, 3) or max(colors, default=0) > 255 or (own or 0) > _LARGEST_ID:
        raise UserError(
            f"{path}: line {number} must name a class, with three colours from 0 to 255 or none, and an id in front or "
            f"none, got {list(cells)}"
        )
    return _Row(name, (colors[0], colors[1], colors[2]) if colors else None, own)


def _check(where: Path, classes: Sequence[SourceClass]) -> None:
    if not 0 < len(classes) <= MOST_CLASSES:
        raise UserError(f"{where}: there must be 1 to {MOST_CLASSES} classes, got {len(classes)}")
    for what in ("name", "color", "id"):
        counts = Counter(value for each in classes if (value := getattr(each, what)) is not None)
        twice = [value for value, count in counts.items() if count > 1]
        if twice:
            raise UserError(f"{where}: two classes have the {what} {twice[0]!r}")


def tally(values: NDArray[np.unsignedinteger]) -> Counter[Any]:
    """How often each value of a label, or each colour, occurs."""
    if values.ndim == 2:
        found, counts = np.unique(values, return_counts=True)
        return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    packed, counts = np.unique(_packed(values), return_counts=True)
    colors = [(value >> 16, value >> 8 & 255, value & 255) for value in packed.tolist()]
    return Counter(dict(zip(colors, counts.tolist(), strict=True)))


def infer_classes(counts: Counter[Any], tolerance: float, where: Path) -> ClassList:
    """Classes from what the labels hold. Two values are background and foreground; else 255 is void, as in VOC."""
    colored = any(isinstance(value, tuple) for value in counts)
    if colored and not all(isinstance(value, tuple) for value in counts):
        raise UserError(f"{where}: some labels hold colours and others values; name the classes with --classes")
    if colored and all(len(set(value)) == 1 for value in counts):  # grey, stored as colours
        return infer_classes(Counter({value[0]: count for value, count in counts.items()}), tolerance, where)
    frequent = sorted(value for value, count in counts.items() if count >= _NOISE * sum(counts.values()))
    found = sorted(_anchors(counts, tolerance)) if tolerance else sorted(counts)
    if len(found) > _MOST_INFERRED or _look_blurred(frequent, found):
        raise UserError(f"{where}: {_blurred(frequent, found, counts)}")
    void = () if colored or len(found) <= 2 or IGNORE not in found else (IGNORE,)
    kept = [value for value in found if value not in void]
    names = [BACKGROUND, "foreground"] if len(kept) == 2 and kept[0] in (0, _BLACK) else None
    classes = [
        SourceClass(names[place] if names else f"class {place if colored else value}", place if colored else value)
        for place, value in enumerate(kept)
    ]
    if colored:
        classes = [replace(each, color=color) for each, color in zip(classes, kept, strict=True)]
    return ClassList(tuple(classes), void, (), INFERRED)


def _anchors(counts: Counter[Any], radius: float, together: bool = True) -> list[Any]:
    """The values that stand for those near them, the most frequent first, without what is rare.

    What is near counts ``together``: compression may leave no value of a class frequent by itself. If only one is left,
    as of a mask of small, blurred objects, the largest of the values that are far from it is the other one: no pixel
    inside such an object may have the same value as the next.
    """
    values = list(counts)
    if not values:
        return []  # no label could be read
    points = np.array(values, float).reshape(len(values), -1)
    pixels = np.array([counts[value] for value in values], float)
    least, kept = _NOISE * pixels.sum(), []
    for _ in range(_MOST_TRIED):
        top = int(pixels.argmax())
        near = np.linalg.norm(points - points[top], axis=1) <= radius
        if (pixels[near].sum() if together else pixels[top]) >= least:
            kept.append(values[top])
        pixels[near] = 0
        if pixels.sum() < least:
            break
    if len(kept) == 1:
        kept += sorted(value for value in values if _distance(value, kept[0]) > radius)[-1:]
    return kept


def _distance(one: Any, other: Any) -> float:
    return float(np.linalg.norm(np.subtract(one, other, dtype=float)))


def _look_blurred(frequent: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether the rare values look like compression or antialiasing: many, and not ids that count up from 0.

    Rare colours that are mixtures of frequent ones do; a palette's own lie elsewhere.
    """
    rare = [value for value in found if value not in frequent and value != IGNORE]
    if len(rare) < _MANY_RARE or len(rare) <= len(frequent):
        return False
    if not isinstance(rare[0], tuple):
        return max(rare) >= max(_LARGE_ID, 2 * len(found))
    mixed = _between(np.array(rare, float), np.array(frequent, float).reshape(-1, 3)) <= _MIXED
    return bool(mixed.mean() > 0.8)


def _between(points: NDArray[np.float64], anchors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(P, D), (A, D) -> (P,): the distance of each point from the nearest line between two anchors."""
    nearest = np.full(len(points), np.inf)
    for place, start in enumerate(anchors):
        for end in anchors[place:]:
            line = end - start
            along = ((points - start) @ line / max(line @ line, 1.0)).clip(0, 1)
            nearest = np.minimum(nearest, np.linalg.norm(points - start - along[:, None] * line, axis=1))
    return nearest


def _blurred(frequent: Sequence[Any], found: Sequence[Any], counts: Counter[Any]) -> str:
    """What is wrong with labels of too many values, and what to do."""
    problem = f"the labels hold {len(found)} different values, which look like compression or antialiasing; "
    # Neighbours are shades of one value, which no tolerance could keep apart.
    near = _MIXED if len(frequent) > 1 and _gap(frequent) < 2 else 0
    for anchors in (_anchors(counts, near, together=False), _unmixed(_anchors(counts, _SHADES))):
        tolerance = round(_gap(anchors) / 2) if 2 <= len(anchors) <= _FEW else 0
        share = _share_near(counts, anchors, tolerance) if tolerance else 0.0
        if share >= _NEARLY_ALL:
            listed = ", ".join(map(str, sorted(anchors)))
            return (
                f"{problem}{100 * share:.3g} % of the pixels are within {tolerance} of {listed}: pass --tolerance "
                f"{tolerance} for the values near these, or name all classes with --classes"
            )
    return f"{problem}name the classes with --classes, and pass --tolerance for values near them"


def _share_near(counts: Counter[Any], anchors: Sequence[Any], tolerance: float) -> float:
    """The share of the pixels whose value is within the tolerance of an anchor."""
    points = np.array(list(counts), float).reshape(len(counts), 1, -1)
    distances = np.linalg.norm(points - np.array(anchors, float).reshape(len(anchors), -1), axis=-1)  # (P, A)
    return float(np.array(list(counts.values()))[distances.min(1) <= tolerance].sum() / sum(counts.values()))


def _unmixed(anchors: Sequence[Any]) -> list[Any]:
    """The anchors, the most frequent first, that are not mixtures of those before them."""
    points = np.array(anchors, float).reshape(len(anchors), -1)
    kept = list(range(min(2, len(anchors))))
    for place in range(2, len(anchors)):
        if _between(points[[place]], points[kept])[0] > _SHADES:
            kept.append(place)
    return [anchors[place] for place in kept]


def _gap(values: Sequence[Any]) -> float:
    return min(_distance(one, other) for one, other in combinations(values, 2))


class Nearest:
    """Maps values and colours to the nearest class within a tolerance, and all others to void."""

    def __init__(self, classes: ClassList, tolerance: float) -> None:
        labels = list(range(len(classes.classes)))
        self._tolerance = tolerance
        ids = [(each.id, label) for label, each in enumerate(classes.classes)]
        ids += [(value, IGNORE) for value in classes.void_ids]
        colors = [(each.color, label) for label, each in zip(labels, classes.classes, strict=True) if each.color]
        colors += [(color, IGNORE) for color in classes.void_colors]
        self._ids = np.array([[value] for value, _ in ids], np.float32)
        self._of_ids = np.array([label for _, label in ids], np.uint8)
        self._colors = np.array([color for color, _ in colors], np.float32).reshape(-1, 3)
        self._of_colors = np.array([label for _, label in colors], np.uint8)

    def __call__(self, values: NDArray[np.unsignedinteger]) -> tuple[Pixels, NDArray[np.bool_]]:
        """The label (H, W), and where nothing is near enough."""
        if values.ndim == 3 and not len(self._colors):
            if not (values[..., :1] == values).all():
                raise ValueError("a colour image, but no class has a colour; name them with --classes")
            values = values[..., 0]  # grey, stored as colours
        flat = _packed(values) if values.ndim == 3 else values.astype(np.uint32)
        found, where = np.unique(flat, return_inverse=True)
        if values.ndim == 3:
            points = np.stack([found >> 16, found >> 8 & 255, found & 255], 1).astype(np.float32)
            labels, distance = _nearest(points, self._colors, self._of_colors)
        else:
            labels, distance = _nearest(found[:, None].astype(np.float32), self._ids, self._of_ids)
        unknown = distance > self._tolerance
        labels = np.where(unknown, np.uint8(IGNORE), labels)
        shape = values.shape[:2]
        return labels[where].reshape(shape), unknown[where].reshape(shape)


def _nearest(
    points: NDArray[np.float32], anchors: NDArray[np.float32], labels: Pixels
) -> tuple[Pixels, NDArray[np.float32]]:
    best, distance = np.zeros(len(points), np.uint8), np.full(len(points), np.inf, np.float32)
    for anchor, label in zip(anchors, labels, strict=True):  # few classes, perhaps many colours
        own = np.sqrt(((points - anchor) ** 2).sum(1))
        best, distance = np.where(own < distance, label, best), np.minimum(own, distance)
    return best, distance


def _packed(colors: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
    wide = colors.astype(np.uint32)
    return (wide[..., 0] << 16) + (wide[..., 1] << 8) + wide[..., 2]  # (H, W, 3) -> (H, W)


def find_class_list(source: Path, given: Path | None) -> ClassList | None:
    """The list that the user names, or one of the usual files in the source."""
    if given is not None:
        return read_class_list(given)
    return next((read_class_list(source / name) for name in FILES if (source / name).is_file()), None)
