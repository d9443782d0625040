"""Map the values in label files to 0 … C-1 and void, as a dataset or a ``classes.yaml`` defines them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short  # file contents may be arbitrarily long
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.base import BrokenFileError, UserError, read_yaml
from losspool.segmentation.data.files.groups import Groups, parse_groups
from losspool.segmentation.data.files.images import read_values, too_large
from losspool.segmentation.data.files.palette import Color, free_color
from losspool.segmentation.data.protocol import IGNORE, ClassInfo, Pixels

_UNKNOWN = 254  # never a class: a dataset has at most 254
MOST_CLASSES = 254


class LabelDecoder:
    """Maps the values or colours of a file to labels. Unknown values raise an error that names the file."""

    def __init__(
        self,
        values: Mapping[int, int],
        colors: Mapping[Color, int] | None = None,
        *,
        exif: bool = True,
        class_file: str = "",
    ) -> None:
        """``values`` and ``colors`` map each allowed value and colour to its label, ``IGNORE`` for void.

        With ``exif``, the EXIF orientation of a label file is applied. ``class_file`` is the name of the user's own
        file that defines the values, for messages.
        """
        self._class_file = class_file
        self.values, self.colors, self.exif = dict(values), dict(colors or {}), exif
        self.key = repr((sorted(self.values.items()), sorted(self.colors.items()), exif))
        """Identifies the decoding; use it as part of a cache key."""
        self._by_value = np.full(1 << 16, _UNKNOWN, np.uint8)
        self._by_value[list(values)] = list(values.values())
        self._by_byte = self._by_value[:256].tobytes()
        packed = {_packed(np.array(color)).item(): label for color, label in self.colors.items()}
        self._colors = np.array(sorted(packed), np.uint32)
        self._by_color = np.array([packed[color] for color in sorted(packed)], np.uint8)

    def read(self, path: Path) -> Pixels:
        """Read the labels (H, W) of a file."""
        values = read_values(path, self.exif)
        try:
            return self._from_colors(values, path) if values.ndim == 3 else self._from_values(values, path)
        except MemoryError:
            raise too_large(path) from None

    def ignoring_exif(self) -> LabelDecoder:
        """The same without the EXIF orientation of the files."""
        return LabelDecoder(self.values, self.colors, exif=False, class_file=self._class_file)

    def _from_values(self, values: NDArray[np.unsignedinteger], path: Path) -> Pixels:
        # For bytes, translate and find take a fifth of NumPy's time. This matters: each crop decodes a whole frame.
        decoded = (
            values.tobytes().translate(self._by_byte) if values.itemsize == 1 else self._by_value[values].tobytes()
        )
        unknown = decoded.find(_UNKNOWN)
        if unknown >= 0:
            value = int(values.flat[unknown])
            advice = f"; write `ignore: 255` in {self._class_file} if it is void, or `id: 255` for its class"
            hint = advice if value == IGNORE and self._class_file else ""
            raise BrokenFileError(path, f"the label value {value} is neither a class id nor void{hint}")
        return np.frombuffer(decoded, np.uint8).reshape(values.shape)

    def _from_colors(self, values: NDArray[np.unsignedinteger], path: Path) -> Pixels:
        if not len(self._colors):
            raise BrokenFileError(path, "the label is a colour image, but this dataset uses index images")
        packed = _packed(values)
        place = np.minimum(np.searchsorted(self._colors, packed), len(self._colors) - 1)
        unknown = self._colors[place] != packed
        if unknown.any():
            color = tuple(int(channel) for channel in values[unknown][0])
            raise BrokenFileError(path, f"the colour {color} is neither a class colour nor void")
        return self._by_color[place]


def contiguous(count: int, void: int = IGNORE) -> LabelDecoder:
    """Return a decoder for files with values 0 … count-1 and ``void``."""
    return LabelDecoder({**{label: label for label in range(count)}, void: IGNORE})


def _packed(colors: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
    wide = colors.astype(np.uint32)
    return (wide[..., 0] * 256 + wide[..., 1]) * 256 + wide[..., 2]  # (..., 3) -> (...)


_FIELDS = {"classes", "ignore", "ignore_color", "intensity", "groups"}
_CLASS_FIELDS = {"name", "id", "color"}


@dataclass(frozen=True)
class ClassFile:
    """The classes in order, and the decoder of their label files."""

    infos: tuple[ClassInfo, ...]
    decoder: LabelDecoder
    groups: Groups
    intensity: tuple[float, float] | None = None
    """The values that become black and white in images of more than 8 bits, if the file names them."""


def read_classes(path: Path) -> ClassFile:
    """Read ``classes: [{name: weed, id: 2, color: [255, 0, 0]}, …]``, ``ignore: 255``, ``ignore_color``, ``intensity``.
    ``groups`` names images that belong together, see :func:`parse_groups`.

    Label files store the ids (index and palette images) or the colours (colour images). Decoded
    labels are 0, 1, … in the order of the list. A class without an id has its place in the list, one without a colour
    is given one; so ``classes: [soil, weed]`` is enough.
    """
    content = _read_mapping(path)
    _refuse_unknown(path, "the file", content, _FIELDS)
    entries = content.get("classes")
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: 'classes' must be a list of at least one class, got {short(entries)}")
    if len(entries) > MOST_CLASSES:
        raise UserError(f"{path}: 'classes' holds {len(entries)} classes, at most {MOST_CLASSES} are allowed")
    values: dict[int, int] = {}
    colors: dict[Color, int] = {}
    names: list[str] = []
    colored = [entry.get("color") for entry in entries if isinstance(entry, dict)]
    stated = [tuple(color) for color in (*colored, content.get("ignore_color")) if isinstance(color, list)]
    for label, entry in enumerate(entries):
        where = f"classes[{label}]"
        entry = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, dict):
            raise UserError(f"{path}: {where} must be a name, or hold name, id and color, got {short(entry)}")
        _refuse_unknown(path, where, entry, _CLASS_FIELDS)
        names.append(_name(path, f"{where}.name", entry.get("name"), names))
        _add(path, f"{where}.id", values, _whole(path, f"{where}.id", entry.get("id", label), 65535), label, names)
        color = entry["color"] if "color" in entry else list(free_color([*stated, *colors]))
        _add(path, f"{where}.color", colors, _color(path, f"{where}.color", color), label, names)
    infos = tuple(ClassInfo(*each) for each in zip(names, colors, values, strict=True))
    if (void := content.get("ignore")) is not None:
        _add(path, "ignore", values, _whole(path, "ignore", void, 65535), IGNORE, names)
    if (color := content.get("ignore_color")) is not None:
        _add(path, "ignore_color", colors, _color(path, "ignore_color", color), IGNORE, names)
    groups, intensity = parse_groups(path, content.get("groups")), _range(path, content.get("intensity"))
    return ClassFile(infos, LabelDecoder(values, colors, class_file=path.name), groups, intensity)


def _range(path: Path, value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    numbers = [each for each in value if type(each) in (int, float)] if isinstance(value, list) else []
    if len(numbers) != 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:
        raise UserError(f"{path}: intensity must be two numbers [low, high], the lower first, got {short(value)}")
    return float(numbers[0]), float(numbers[1])


def _read_mapping(path: Path) -> dict[Any, Any]:
    content = read_yaml(path, "the file that names the classes")
    if not isinstance(content, dict):
        raise UserError(f"{path}: the file must contain 'classes' and 'ignore', got {short(content)}")
    return content


def _refuse_unknown(path: Path, where: str, content: dict[Any, Any], known: set[str]) -> None:
    for key in content:
        if key not in known:
            raise UserError(f"{path}: {where} has the unknown field {key!r}; choose from {', '.join(sorted(known))}")


def _name(path: Path, where: str, value: Any, names: list[str]) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}: {where} must be a non-empty string, got {short(value)}")
    if value in names:
        raise UserError(f"{path}: {where} {value!r} is already the name of classes[{names.index(value)}]")
    return value


def _whole(path: Path, where: str, value: Any, largest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
        raise UserError(f"{path}: {where} must be a whole number from 0 to {largest}, got {short(value)}")
    return value


def _color(path: Path, where: str, value: Any) -> Color:
    if not isinstance(value, list) or len(value) != 3:
        raise UserError(f"{path}: {where} must be three numbers [red, green, blue], got {short(value)}")
    red, green, blue = (_whole(path, where, channel, 255) for channel in value)
    return red, green, blue


def _add(path: Path, where: str, taken: dict[Any, int], value: Any, label: int, names: list[str]) -> None:
    if value in taken:
        readable = list(value) if isinstance(value, tuple) else value
        owner = "void" if taken[value] == IGNORE else repr(names[taken[value]])
        raise UserError(f"{path}: {where} {readable!r} already belongs to {owner}")
    taken[value] = label
