"""Image files become upright RGB of 8 bits: EXIF orientations, and grey images of more than 8 bits."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.config import DataConfig, load_config
from losspool.segmentation.data import Reading, open_dataset, read_image, read_pair
from losspool.segmentation.data.files.intensity import found_intensity
from losspool.segmentation.data.files.labels import read_classes
from losspool.segmentation.prediction import TrainedRun
from losspool.segmentation.training import Trainer
from runs_for_tests import train, write_recipe
from small_data import label_values, noise, save, write_classes, write_folder

# By the EXIF standard: the corner of the upright image that the file's first row and first column begin in, and
# whether rows of the file are columns of the picture.
UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: np.swapaxes(stored, 0, 1),
    6: lambda stored: np.swapaxes(stored[::-1], 0, 1),
    7: lambda stored: np.swapaxes(stored[::-1, ::-1], 0, 1),
    8: lambda stored: np.swapaxes(stored[:, ::-1], 0, 1),
}


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_orientations_are_applied_or_ignored(tmp_path, orientation, suffix):
    path = save(tmp_path / f"x.{suffix}", noise(16, 24), exif=exif(orientation))
    stored = np.asarray(Image.open(path))
    np.testing.assert_array_equal(read_image(path, Reading("apply")), UPRIGHT[orientation](stored))
    np.testing.assert_array_equal(read_image(path, Reading("ignore")), stored)


def test_a_label_with_an_orientation_is_turned_with_its_image(tmp_path):
    write_classes(tmp_path)
    values = label_values(40, 60)
    save(tmp_path / "images/train/a.jpg", noise(40, 60), exif=exif(6))
    save(tmp_path / "labels/train/a.png", values, exif=exif(6))
    save(tmp_path / "images/train/b.jpg", noise(40, 60), exif=exif(6))
    save(tmp_path / "labels/train/b.png", UPRIGHT[6](values))
    dataset = open_dataset("folder", tmp_path, "train")
    for index in range(2):
        image, label = read_pair(dataset, index)
        assert image.size == (40, 60)
        np.testing.assert_array_equal(label == 2, UPRIGHT[6](values == 7))
    ignoring = open_dataset("folder", tmp_path, "train", reading=Reading("ignore"))
    np.testing.assert_array_equal(ignoring.label(0) == 2, values == 7)
    assert ignoring.fingerprint() != dataset.fingerprint()


def test_damaged_exif_is_no_reason_to_refuse_an_image(tmp_path):
    path = save(tmp_path / "x.jpg", noise(16, 24), exif=b"Exif\0\0rubbish")
    assert read_image(path, Reading("apply")).size == (24, 16)


def deep(path, values, dtype=np.uint16):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(dtype)).save(path)
    return path


def twelve_bits(count=6, size=(40, 60)):
    """Values 300 … 3900 of a 12-bit camera."""
    return [np.random.default_rng(seed).integers(300, 3901, size) for seed in range(count)]


@pytest.mark.parametrize(
    ("suffix", "dtype"), [("png", np.uint16), ("tif", np.uint16), ("tif", np.int32), ("tif", "f4")]
)
def test_deep_greys_are_scaled_by_the_range_of_the_data(tmp_path, suffix, dtype):
    write_classes(tmp_path)
    for number, values in enumerate(twelve_bits()):
        deep(tmp_path / f"images/train/{number}.{suffix}", values, dtype)
        save(tmp_path / f"labels/train/{number}.png", label_values(40, 60))
    dataset = open_dataset("folder", tmp_path, "train")
    low, high = dataset.reading.intensity
    assert (low, high) == pytest.approx((300, 3900), abs=10)
    for index, values in enumerate(twelve_bits()):
        image = np.asarray(dataset.image(index))
        expected = ((values - low) / (high - low)).clip(0, 1) * 255
        np.testing.assert_allclose(image[..., 1], expected, atol=0.51)
        np.testing.assert_array_equal(image[..., 0], image[..., 2])


def test_hot_pixels_and_nan_do_not_widen_the_range(tmp_path):
    values = twelve_bits(1, (100, 100))[0].astype(float)
    values[0, :3] = 1e9, np.nan, -np.inf
    path = deep(tmp_path / "a.tif", values, np.float32)
    assert found_intensity([path]) == pytest.approx((300, 3900), abs=10)
    image = np.asarray(read_image(path, Reading(intensity=(300, 3900))))[0, :3, 0]
    assert image.tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(578.15149, 3805.698000000004, 9999), (581.38, 3802.47)),
        (np.linspace(12345678, 12345778, 9999), (12345678, 12345777)),
    ],
)
def test_a_range_has_six_significant_digits(tmp_path, values, expected):
    path = deep(tmp_path / "a.tif", values.reshape(99, 101), np.int32 if values[0] > 1e6 else np.float32)
    assert found_intensity([path]) == expected


def test_full_is_all_that_16_bits_can_hold_and_floats_have_no_such_range(tmp_path):
    ramp = np.linspace(0, 65535, 2400).reshape(40, 60)
    path = deep(tmp_path / "a.png", ramp)
    np.testing.assert_array_equal(np.asarray(read_image(path))[..., 1], ramp.astype(np.uint16) // 257)
    with pytest.raises(BrokenFileError, match=r"a\.tif: Pillow mode 'F' has no fixed range; name the range as data"):
        read_image(deep(tmp_path / "a.tif", ramp, np.float32))


def test_one_deep_image_among_others_is_refused(tmp_path):
    root = write_folder(tmp_path, count=50)
    deep(root / "images/train/001.png", twelve_bits(1)[0])  # between two files of the sample
    dataset = open_dataset("folder", root, "train")
    with pytest.raises(BrokenFileError, match=r"001\.png: a 16-bit image among others of 8 bits; set data\.intensity"):
        dataset.image(1)


def test_classes_yaml_may_name_the_range(tmp_path):
    root = write_folder(tmp_path, count=1)
    text = (root / "classes.yaml").read_text() + "intensity: [0, 4095]\n"
    (root / "classes.yaml").write_text(text)
    assert read_classes(root / "classes.yaml").intensity == (0, 4095)
    deep(root / "images/train/000.png", twelve_bits(1)[0])
    assert open_dataset("folder", root, "train").reading.intensity == (0, 4095)
    named = DataConfig(name="folder", root=str(root), intensity=[5, 99])
    assert named.open("train").reading.intensity == (5, 99)


def colour_16(path, values):
    """A PNG of 16-bit colours, which Pillow cannot write."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, _ = values.shape
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def test_12_bit_colours_in_16_bits_are_refused_instead_of_black(tmp_path):
    values = np.random.default_rng(0).integers(0, 4096, (8, 9, 3))
    path = colour_16(tmp_path / "dark.png", values)
    with pytest.raises(BrokenFileError, match=r"dark\.png: Pillow reads the upper 8 bits .* nearly black"):
        read_image(path, Reading())
    assert np.asarray(read_image(path, Reading(intensity="full"))).max() == 15
    bright = read_image(colour_16(tmp_path / "bright.png", values * 16), Reading())
    np.testing.assert_array_equal(bright, values // 16)


def test_a_run_keeps_the_range_that_it_found(tmp_path):
    """Validation, a resume, evaluation and prediction read images as training did, whatever images are added later."""
    recipe = write_recipe(tmp_path, steps=2)
    for split, factor in (("train", 1), ("val", 2)):
        for number, values in enumerate(twelve_bits(3)):
            deep(tmp_path / f"data/images/{split}/{number:03}.png", values * factor)
    for path in (tmp_path / "data").rglob("00[3-5].png"):
        path.unlink()
    out = tmp_path / "run"
    trainer = train(recipe, out)
    found = trainer.data.reading.intensity
    assert found == pytest.approx((300, 3900), abs=20)
    assert trainer.validation.data.reading.intensity == found
    deep(tmp_path / "data/images/train/003.png", twelve_bits(1)[0] * 16)
    save(tmp_path / "data/labels/train/003.png", label_values(40, 60))
    assert TrainedRun.open(out).dataset("train").reading.intensity == found
    assert Trainer(load_config(recipe), out, resume=True).config.data.intensity == found


def test_runs_of_earlier_versions_are_read_as_they_were(tmp_path):
    recipe = write_recipe(tmp_path, steps=2)
    train(recipe, tmp_path / "run", "data.exif=ignore", "data.intensity=full")
    config = tmp_path / "run" / "config.yaml"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if "exif:" not in line and "intensity:" not in line))
    assert TrainedRun.open(tmp_path / "run").config.data.reading == Reading("ignore", "full")
    assert Trainer(load_config(recipe), tmp_path / "run", resume=True).config.data.reading == Reading("ignore", "full")
    assert load_config(recipe).data.reading == Reading("apply", "auto")
