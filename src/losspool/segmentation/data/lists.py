"""List files: one name per line. Names may hold blanks, so only the line's end is cut off."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from losspool.segmentation.errors import UserError


def read_list(path: Path) -> list[str]:
    """The names in the file, in its order. One that leads out of the folder, or comes twice, is refused."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: the list file does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the list file cannot be read ({error})") from None
    names: dict[str, None] = {}  # in order, and quick to look up
    for line in lines:
        if not line.strip():
            continue
        name = PurePosixPath(line)
        if name.is_absolute() or ".." in name.parts or "\0" in line:
            raise UserError(f"{path}: {line!r} leads out of the folder")
        if str(name) in names:
            raise UserError(f"{path}: {str(name)!r} stands there twice")
        names[str(name)] = None
    return list(names)
