"""Reading image files: every fault becomes one sentence with the file's name."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from losspool.segmentation.errors import BrokenFileError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")

# What Pillow's decoders raise on damaged files, beyond its own OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The file as a Pillow image, not yet decoded; decode it inside, so that damage is named."""
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError:
        raise BrokenFileError(path, "the file does not exist") from None
    except (PermissionError, IsADirectoryError) as error:
        raise BrokenFileError(path, f"the file cannot be opened ({error.strerror})") from None
    except UnidentifiedImageError:
        raise BrokenFileError(path, "not an image that Pillow can read") from None
    except Image.DecompressionBombError as error:
        raise BrokenFileError(path, f"refused because of its size ({error})") from None
    except (*_DAMAGE, MemoryError, OverflowError) as error:
        raise BrokenFileError(path, f"the image cannot be decoded ({error})") from None


def read_image(path: Path) -> Image.Image:
    """RGB, decoded."""
    with opened(path) as image:
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")


def read_values(path: Path) -> NDArray[np.unsignedinteger]:
    """A label file as it is: (H, W) values of an index, palette or 16-bit file, (H, W, 3) of a colour one."""
    with opened(path) as image:
        if image.mode in ("L", "P", "I;16", "I;16B"):
            return cast("NDArray[np.unsignedinteger]", np.asarray(image))
        if image.mode in ("1", "I"):  # Pillow widens some 16-bit files to "I"
            values = np.asarray(image).astype(np.int64)
            if values.min(initial=0) >= 0 and values.max(initial=0) < 1 << 16:
                return values.astype(np.uint16)
            raise BrokenFileError(path, "labels must lie between 0 and 65535")
        if image.mode in ("RGB", "RGBA"):
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
        raise BrokenFileError(path, f"not an index, palette or colour image, but of Pillow's mode {image.mode!r}")


def size_of(path: Path) -> tuple[int, int]:
    """(height, width) from the file's head, without decoding it."""
    with opened(path) as image:
        return image.height, image.width
