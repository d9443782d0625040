"""Read image files. Every fault becomes a one-sentence error that names the file."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin, UnidentifiedImageError

from losspool.segmentation.base import BrokenFileError, UserError, yaml_line
from losspool.segmentation.data.protocol import Pixels

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")

# Formats of these suffixes. Pillow detects formats by content, and for some others would start Ghostscript.
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")

_CHANNELS = "store images with 1 or 3 channels of 8 bits, or 4 with alpha"
_TIFF_FLOAT = 3  # of the tag SampleFormat

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
def open_image(path: Path) -> Iterator[Image.Image]:
    """Open the file as a Pillow image. Decode it inside the context, so that errors name the file."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            yield image
    except UnidentifiedImageError:
        raise BrokenFileError(path, _why_unidentified(path)) from None
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


def _why_unidentified(path: Path) -> str:
    """Pillow knows few kinds of TIFF; say which kind this is."""
    try:
        with open(path, "rb") as file:
            tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
            file.seek(tags.next)
            tags.load(file)
        channels = tags.get(TiffImagePlugin.SAMPLESPERPIXEL, 1)
        bits, kind = tags.get(TiffImagePlugin.BITSPERSAMPLE, (1,))[0], tags.get(TiffImagePlugin.SAMPLEFORMAT, (1,))[0]
    except (OSError, *_DAMAGE):
        return "not an image that Pillow can read"
    stored = f"a TIFF of {channels} channels with {bits} bits{' (float)' if kind == _TIFF_FLOAT else ''}"
    return f"{stored}, which Pillow cannot read; {_CHANNELS}"


def _undecodable(path: Path, error: Exception) -> UserError:
    if "out of memory" in str(error):  # the wording of Pillow's decoders
        return too_large(path)
    return BrokenFileError(path, f"the image cannot be decoded ({error})")


class UnknownRangeError(BrokenFileError):
    """An image of more than 8 bits where nothing says which of its values are black and white."""


Intensity = Literal["auto", "full"] | tuple[float, float]


@dataclass(frozen=True)
class Reading:
    """How image files become upright RGB images of 8 bits."""

    exif: Literal["apply", "ignore"] = "apply"
    """Whether the EXIF orientation is applied, to images and to labels that have one."""
    intensity: Intensity = "auto"
    """The values that become black and white, in grey images of more than 8 bits. ``full``: 0 and 65535.
    ``auto``: a dataset finds the range of its images."""

    @property
    def settings(self) -> list[str]:
        """What differs from the default, as overrides of a command."""
        usual = asdict(Reading())
        return [f"data.{key}={yaml_line(value)}" for key, value in asdict(self).items() if value != usual[key]]


@runtime_checkable
class HasReading(Protocol):
    """Optional extension of a dataset, for one that reads its image files as the ``data`` section of a recipe says."""

    @property
    def reading(self) -> Reading:
        """How image files are read. An ``intensity`` that was found replaces ``auto``."""

    def read_as(self, reading: Reading) -> None:
        """Read the files like this from now on."""


_STORED = Reading("ignore", "full")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_NEARLY_BLACK = 16  # of 256 levels: 12 bits in the place of 16


def read_image(path: Path, reading: Reading = _STORED) -> Image.Image:
    """Read and decode an image as RGB. By default neither its orientation nor its range is changed."""
    with open_image(path) as image:
        raw = raw_mode(image)
        image.load()
        rgb = _as_rgb(image, raw, path, reading.intensity)
        return upright(rgb, orientation(image)) if reading.exif == "apply" else rgb


def _as_rgb(image: Image.Image, raw: str, path: Path, intensity: Intensity) -> Image.Image:
    if isinstance(image, TiffImagePlugin.TiffImageFile) and "X" in raw and raw != "RGBX":
        channels = image.tag_v2.get(TiffImagePlugin.SAMPLESPERPIXEL)
        raise BrokenFileError(path, f"a TIFF of {channels} channels, of which only some would be read; {_CHANNELS}")
    if is_deep(image):
        return Image.fromarray(_grey_levels(image, path, intensity)).convert("RGB")
    rgb = image
    if image.mode != "RGB":
        rgb = (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")
    if is_cut(raw) and intensity != "full" and np.asarray(rgb).max(initial=0) < _NEARLY_BLACK:
        raise BrokenFileError(
            path,
            "Pillow reads the upper 8 bits of a 16-bit colour image, and these are nearly black, as of 12-bit data; "
            "store it with 8 bits, or set data.intensity=full to read it so",
        )
    return rgb


def _grey_levels(image: Image.Image, path: Path, intensity: Intensity) -> Pixels:
    if isinstance(intensity, tuple):
        low, high = intensity
        share = (np.asarray(image).astype(np.float32) - low) / (high - low)
        return (np.nan_to_num(share).clip(0, 1) * 255).round().astype(np.uint8)
    if image.mode in ("I", "F"):
        raise UnknownRangeError(
            path, f"Pillow mode {image.mode!r} has no fixed range; name the range as data.intensity=[low, high]"
        )
    if intensity == "auto":
        raise UnknownRangeError(
            path, "a 16-bit image among others of 8 bits; set data.intensity=full, or to its range [low, high]"
        )
    return (np.asarray(image).astype(np.uint32) // 257).astype(np.uint8)


def is_deep(image: Image.Image) -> bool:
    """Whether a grey image has more than 8 bits."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def is_cut(raw: str) -> bool:
    """Whether pixels stored like this have colours of 16 bits, of which Pillow keeps the upper 8."""
    return raw.endswith((";16B", ";16L", ";16N")) and not raw.startswith("I")


def raw_mode(image: Image.Image) -> str:
    """How the file stores its pixels, such as ``RGB;16B``. Known only before the image is decoded."""
    tile = getattr(image, "tile", None)
    if not tile:
        return ""
    arguments = tile[0][3]  # unnamed before Pillow 11
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def orientation(image: Image.Image) -> int:
    """The EXIF orientation of a decoded image, from 1 (upright) to 8. Pillow applies that of a TIFF by itself."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except _DAMAGE:
        return 1
    return value if value in _TURNS else 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Turn an image as its EXIF orientation says."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


# Pillow stretches 2-bit and 4-bit grey levels to 0 … 255; label values must be restored.
_STRETCHED = {"L;2": 85, "L;4": 17}


def read_values(path: Path, exif: bool = False, palette: bool = False) -> NDArray[np.unsignedinteger]:
    """Read the raw values of a label file: (H, W) for index, palette and 16-bit files, (H, W, 3) for colour files.

    With ``exif``, apply its EXIF orientation. With ``palette``, return the colours of a palette file.
    """
    with open_image(path) as image:
        raw = raw_mode(image)
        image.load()
        turned = upright(image, orientation(image)) if exif else image
        return _values(turned.convert("RGB") if palette and image.mode == "P" else turned, raw, path)


def _values(image: Image.Image, raw: str, path: Path) -> NDArray[np.unsignedinteger]:
    if image.mode == "LA":  # grey and opacity
        image = image.getchannel("L")
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
    with open_image(path) as image:
        return image.height, image.width
