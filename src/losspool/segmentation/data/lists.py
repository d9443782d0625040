"""List files: one name per line. Names may hold blanks, so only the line's end is cut off."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from losspool.segmentation.errors import UserError


def read_list(path: Path) -> list[str]:
    """The names in the file, in its order; a name that leads out of the folder, or comes twice, is refused."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: the list file does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the list file cannot be read ({error})") from None
    names = [line for line in lines if line.strip()]
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
            raise UserError(f"{path}: {name!r} leads out of the folder")
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise UserError(f"{path}: {min(twice)!r} stands there twice")
    return names
