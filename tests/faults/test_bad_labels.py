"""Whatever an image or a label file holds, only the error that names it ever leaves, and memory is bounded."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from faults.bad_files import bounded_memory, damaged, many, png, read_or_refused
from losspool.segmentation.base.errors import BrokenFileError
from losspool.segmentation.data.files.images import read_image
from losspool.segmentation.data.files.labels import LabelDecoder, contiguous
from small_data import VOID, label_values


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("input")


INDEX = contiguous(8)
BOTH = LabelDecoder({0: 0, 2: 1, 7: 2, VOID: 255}, {(90, 60, 30): 0, (255, 0, 0): 1, (0, 160, 0): 2})


def picture(mode, kind):
    image = Image.fromarray(label_values(12, 10))
    image = image.convert("L").convert(mode) if mode != "I;16" else Image.fromarray(np.asarray(image, np.uint16))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def pictures():
    """One file of every mode that each format can hold."""
    for kind in ("PNG", "TIFF", "BMP", "WEBP", "JPEG", "GIF", "PPM"):
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I;16", "I", "F"):
            with contextlib.suppress(OSError, ValueError):
                yield picture(mode, kind)


PICTURES = list(pictures())


extents = st.integers(0, 40) | st.sampled_from([1 << 14, 1 << 20, (1 << 31) - 1, 1 << 31])
names = st.sampled_from(
    [b"tRNS", b"gAMA", b"iCCP", b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"pHYs"]
)
crafted = st.builds(
    png,
    extents,
    extents,
    st.binary(max_size=64) | st.integers(0, 2000).map(bytes),
    depth=st.sampled_from([1, 2, 4, 8, 16]) | st.integers(0, 255),
    color=st.sampled_from([0, 2, 3, 4, 6]) | st.integers(0, 255),
    interlace=st.integers(0, 2),
    palette=st.none() | st.binary(max_size=12),
    more=st.lists(st.tuples(names, st.binary(max_size=24)), max_size=2),
)


@many
@given(content=st.binary(max_size=80) | damaged(PICTURES) | crafted)
def test_only_broken_file_errors_leave_the_label_decoder(folder, content):
    path = folder / "label.png"
    path.write_bytes(content)
    with bounded_memory(1 << 30):
        for decoder, names in ((INDEX, set(range(8))), (BOTH, {0, 1, 2})):
            labels = read_or_refused(lambda decoder=decoder: decoder.read(path))
            if labels is not None:
                assert (labels.ndim, labels.dtype) == (2, np.uint8)
                assert set(np.unique(labels).tolist()) <= names | {255}
        image = read_or_refused(lambda: read_image(path))
        assert image is None or image.mode == "RGB"


def test_what_is_not_an_image_format_of_datasets_is_not_even_tried(folder):
    """Pillow would hand PostScript to a program of its own."""
    path = folder / "label.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 2\n%%EndComments\nshowpage\n")
    for read in (INDEX.read, read_image):
        with pytest.raises(BrokenFileError, match=r"label\.png: not an image that Pillow can read"):
            read(path)
