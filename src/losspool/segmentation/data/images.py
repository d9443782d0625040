"""Reading image files: every fault becomes one sentence with the file's name."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from losspool.segmentation.base import BrokenFileError, UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")

# The formats of these suffixes, whatever a file is called: of the others one would start Ghostscript.
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")

# What Pillow's decoders raise on damaged files, beyond its own OSError.
_DAMAGE = (SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)

# What the system says of a file that is not there, not for us, or damaged (its offsets may lead nowhere). All else
# that it says, of too many open files, a failing disk or a server that is gone, is no reason to go without this file.
_OF_THE_FILE = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EINVAL, errno.EOVERFLOW),
)


def unreadable(path: Path, error: OSError) -> UserError:
    """What to raise for an error of the system: a :class:`BrokenFileError` only where the file is to blame."""
    if error.errno == errno.ENOENT:
        return BrokenFileError(path, "the file does not exist")
    if error.errno in _OF_THE_FILE:
        return BrokenFileError(path, f"the file cannot be opened ({error.strerror})")
    return UserError(f"{path}: reading failed ({error.strerror}); the file itself may be whole")


def too_large(path: Path) -> UserError:
    return UserError(f"{path}: there is not enough memory to read it")


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The file as a Pillow image, not yet decoded; decode it inside, so that damage is named."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            yield image
    except UnidentifiedImageError:
        raise BrokenFileError(path, "not an image that Pillow can read") from None
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from None
        raise _undecodable(path, error) from None  # Pillow's own
    except MemoryError:
        raise too_large(path) from None
    except Image.DecompressionBombError as error:
        raise BrokenFileError(path, f"refused because of its size ({error})") from None
    except (*_DAMAGE, OverflowError) as error:
        raise _undecodable(path, error) from None


def _undecodable(path: Path, error: Exception) -> UserError:
    if "out of memory" in str(error):  # as Pillow's decoders say it
        return too_large(path)
    return BrokenFileError(path, f"the image cannot be decoded ({error})")


def read_image(path: Path) -> Image.Image:
    """RGB, decoded, as it is stored: an EXIF orientation is not applied, because labels have none."""
    with opened(path) as image:
        image.load()
        if image.mode == "RGB":
            return image
        if image.mode in ("I", "F"):  # Pillow would clip them to white
            raise BrokenFileError(
                path, f"of Pillow's mode {image.mode!r}, which has no fixed range; store 8 or 16 bits"
            )
        if image.mode.startswith("I;16"):
            grey = (np.asarray(image).astype(np.uint32) // 257).astype(np.uint8)
            return Image.fromarray(grey).convert("RGB")
        transparent = "transparency" in image.info
        return (image.convert("RGBA") if transparent else image).convert("RGB")


# Pillow stretches grey levels of 2 and 4 bits to 0 … 255; labels must come back as they were.
_STRETCHED = {"L;2": 85, "L;4": 17}


def read_values(path: Path) -> NDArray[np.unsignedinteger]:
    """A label file as it is: (H, W) values of an index, palette or 16-bit file, (H, W, 3) of a colour one."""
    with opened(path) as image:
        tile = getattr(image, "tile", None)
        raw = str(tile[0][3]) if tile else ""  # its arguments; before Pillow 11 they have no name
        if image.mode in ("L", "P", "I;16", "I;16B"):
            values = cast("NDArray[np.unsignedinteger]", np.asarray(image))
            return values // np.uint8(_STRETCHED[raw]) if raw in _STRETCHED else values
        if image.mode in ("1", "I"):  # Pillow widens some 16-bit files to "I"
            wide = np.asarray(image).astype(np.int64)
            if wide.min(initial=0) >= 0 and wide.max(initial=0) < 1 << 16:
                return wide.astype(np.uint16)
            raise BrokenFileError(path, "labels must lie between 0 and 65535")
        if image.mode in ("RGB", "RGBA"):
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
        raise BrokenFileError(path, f"not an index, palette or colour image, but of Pillow's mode {image.mode!r}")


def size_of(path: Path) -> tuple[int, int]:
    """(height, width) from the file's head, without decoding it."""
    with opened(path) as image:
        return image.height, image.width
