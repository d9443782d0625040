"""Read image files. Every fault becomes a one-sentence error that names the file."""

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

# Formats of these suffixes. Pillow detects formats by content, and for some others would start Ghostscript.
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")

# Errors that Pillow's decoders raise on damaged files, besides OSError.
_DAMAGE = (SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)

# System errors caused by the file itself: missing, not permitted, or damaged (its offsets may be invalid). Any other
# system error (too many open files, a failing disk, a lost server) is not a reason to skip the file.
_FILE_ERRORS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EINVAL, errno.EOVERFLOW),
)


def unreadable(path: Path, error: OSError) -> UserError:
    """Return the error to raise for an OSError: a :class:`BrokenFileError` only if the file itself is at fault."""
    if error.errno == errno.ENOENT:
        return BrokenFileError(path, "the file does not exist")
    if error.errno in _FILE_ERRORS:
        return BrokenFileError(path, f"the file cannot be opened ({error.strerror})")
    return UserError(f"{path}: reading failed ({error.strerror}); the file itself may be intact")


def too_large(path: Path) -> UserError:
    return UserError(f"{path}: not enough memory to read the file")


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open the file as a Pillow image. Decode it inside the context, so that errors name the file."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            yield image
    except UnidentifiedImageError:
        raise BrokenFileError(path, "not an image that Pillow can read") from None
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from None
        raise _undecodable(path, error) from None  # raised by Pillow, not by the system
    except MemoryError:
        raise too_large(path) from None
    except Image.DecompressionBombError as error:
        raise BrokenFileError(path, f"refused because of its size ({error})") from None
    except (*_DAMAGE, OverflowError) as error:
        raise _undecodable(path, error) from None


def _undecodable(path: Path, error: Exception) -> UserError:
    if "out of memory" in str(error):  # the wording of Pillow's decoders
        return too_large(path)
    return BrokenFileError(path, f"the image cannot be decoded ({error})")


def read_image(path: Path) -> Image.Image:
    """Read and decode an image as RGB. EXIF orientation is not applied, because labels have none."""
    with opened(path) as image:
        image.load()
        if image.mode == "RGB":
            return image
        if image.mode in ("I", "F"):  # Pillow would clip them to white on conversion
            raise BrokenFileError(
                path, f"Pillow mode {image.mode!r} has no fixed range; store the image with 8 or 16 bits"
            )
        if image.mode.startswith("I;16"):
            grey = (np.asarray(image).astype(np.uint32) // 257).astype(np.uint8)
            return Image.fromarray(grey).convert("RGB")
        transparent = "transparency" in image.info
        return (image.convert("RGBA") if transparent else image).convert("RGB")


# Pillow stretches 2-bit and 4-bit grey levels to 0 … 255; label values must be restored.
_STRETCHED = {"L;2": 85, "L;4": 17}


def read_values(path: Path) -> NDArray[np.unsignedinteger]:
    """Read the raw values of a label file: (H, W) for index, palette and 16-bit files, (H, W, 3) for colour files."""
    with opened(path) as image:
        tile = getattr(image, "tile", None)
        raw = str(tile[0][3]) if tile else ""  # the tile's arguments; unnamed before Pillow 11
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
        raise BrokenFileError(path, f"not an index, palette or colour image, but Pillow mode {image.mode!r}")


def size_of(path: Path) -> tuple[int, int]:
    """Return (height, width) from the file header, without decoding the image."""
    with opened(path) as image:
        return image.height, image.width
