"""Read and validate ``classes.yaml`` of a custom dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short  # file contents may be arbitrarily long
from typing import Any

from losspool.segmentation.base import UserError, read_yaml
from losspool.segmentation.data.labels import MOST_CLASSES, Color, LabelDecoder
from losspool.segmentation.data.protocol import IGNORE, ClassInfo

_FIELDS = {"classes", "ignore", "ignore_color"}
_CLASS_FIELDS = {"name", "id", "color"}


@dataclass(frozen=True)
class ClassFile:
    """The classes in order, and the decoder of their label files."""

    infos: tuple[ClassInfo, ...]
    decoder: LabelDecoder


def read_classes(path: Path) -> ClassFile:
    """Read ``classes: [{name: weed, id: 2, color: [255, 0, 0]}, …]``, ``ignore: 255`` and optionally ``ignore_color``.

    Label files store the ids (index and palette images) or the colours (colour images). Decoded
    labels are 0, 1, … in the order of the list.
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
    for label, entry in enumerate(entries):
        where = f"classes[{label}]"
        if not isinstance(entry, dict):
            raise UserError(f"{path}: {where} must have the fields name, id and color, got {short(entry)}")
        _refuse_unknown(path, where, entry, _CLASS_FIELDS)
        names.append(_name(path, f"{where}.name", entry.get("name"), names))
        _add(path, f"{where}.id", values, _whole(path, f"{where}.id", entry.get("id"), 65535), label, names)
        _add(path, f"{where}.color", colors, _color(path, f"{where}.color", entry.get("color")), label, names)
    infos = tuple(ClassInfo(name, color) for name, color in zip(names, colors, strict=True))
    if (void := content.get("ignore")) is not None:
        _add(path, "ignore", values, _whole(path, "ignore", void, 65535), IGNORE, names)
    if (color := content.get("ignore_color")) is not None:
        _add(path, "ignore_color", colors, _color(path, "ignore_color", color), IGNORE, names)
    return ClassFile(infos, LabelDecoder(values, colors))


def _read_mapping(path: Path) -> dict[Any, Any]:
    content = read_yaml(path, "the file that names the classes")
    if not isinstance(content, dict):
        raise UserError(f"{path}: the file must contain 'classes' and 'ignore', got {short(content)}")
    return content


def _refuse_unknown(path: Path, where: str, content: dict[Any, Any], known: set[str]) -> None:
    for key in content:
        if key not in known:
            raise UserError(f"{path}: {where} has the unknown field {key!r}; known are {', '.join(sorted(known))}")


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
