"""Laws of the crop: it holds what it was aimed at, invents no label, pads with void, and is decided by the seed."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from losspool.segmentation.data.crops import augment
from losspool.segmentation.data.crops.augment import PADDING, Augmentation


def crop(image, *arguments):
    return augment.crop(Image.fromarray(image), *arguments)


HEIGHTS = st.integers(1, 70)


def scene(height, width, seed=0):
    """Image and label that carry their own coordinates, so that any misplacement shows."""
    rows, columns = np.mgrid[:height, :width]
    image = np.stack([rows * 3, columns * 3, np.full_like(rows, 9)], axis=-1).astype(np.uint8)
    return image, ((rows // 7 + columns // 5 + seed) % 4).astype(np.uint8)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_aimed_crop_holds_the_aimed_pixel_at_every_scale(data):
    """A single pixel of its own class, at any place, any scale, flipped or not, also when the image is smaller."""
    height, width = data.draw(HEIGHTS), data.draw(HEIGHTS)
    size = (data.draw(st.integers(1, 50)), data.draw(st.integers(1, 50)))
    row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    low = data.draw(st.floats(0.25, 2))
    scale = (low, data.draw(st.floats(low, 2)))
    image, label = scene(height, width)
    label[row, column] = 200
    augmentation = Augmentation(size, scale)
    seed = data.draw(st.integers(0, 2**63 - 1))
    for each in crop(image, label, augmentation, seed):  # and an unaimed one works at least
        assert each.shape[:2] == size
    cut, labels = crop(image, label, augmentation, seed, (row, column))
    assert cut.shape == (*size, 3)
    assert labels.shape == size
    assert (labels == 200).any()
    assert set(np.unique(labels)) <= set(np.unique(label)) | {255}


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.1, 1.2, 1.3, 1.5])
def test_fixed_scales_stay_inside_by_a_rounding_too(scale):
    """Each pixel is its own class: none may come from beyond the border, or from the opposite one."""
    for extent in range(1, 12):
        label = np.arange(extent, dtype=np.uint8)[None].repeat(extent, 0)
        image = np.zeros((extent, extent, 3), np.uint8)
        for seed in range(15):
            for aim in (None, (seed % extent, seed % extent)):
                _, labels = crop(image, label, Augmentation((10, 10), (scale, scale), flip=False), seed, aim)
                for row in labels.tolist():
                    seen = [value for value in row if value != 255]
                    assert seen == sorted(seen)
                if aim:
                    assert (labels == aim[1]).any()


def test_the_border_is_repeated_not_darkened():
    white = np.full((9, 9, 3), 255, np.uint8)
    for seed in range(60):
        cut, labels = crop(white, np.zeros((9, 9), np.uint8), Augmentation((14, 14), (0.5, 1.5)), seed, (0, 8))
        assert (cut[labels == 0] == 255).all()


@pytest.mark.parametrize("flip", [False, True])
def test_a_pole_one_pixel_wide_survives_half_scale(flip):
    """Nearest-pixel sampling at scale ½ drops every second column; not the aimed one."""
    image, label = scene(300, 400)
    label[:] = 0
    for column in range(0, 400, 13):
        label[100:200, column] = 3
        for seed in range(8):
            augmentation = Augmentation((64, 64), (0.5, 0.5), flip)
            _, labels = crop(image, label, augmentation, seed, (150, column))
            assert (labels == 3).any()
        label[:] = 0


def test_image_and_label_stay_together():
    """Where the image's own coordinates say (row, column), the label must be that pixel's."""
    image, label = scene(80, 80)
    for seed in range(40):
        cut, labels = crop(image, label, Augmentation((48, 48), (1, 1)), seed)
        rows, columns = cut[..., 0] / 3, cut[..., 1] / 3
        inside = labels != 255
        expected = label[np.round(rows).astype(int), np.round(columns).astype(int)]
        # An unaimed crop begins between pixels; where the nearest pixel is a toss-up, either is right.
        clear = (np.abs(rows % 1 - 0.5) > 0.2) & (np.abs(columns % 1 - 0.5) > 0.2)
        assert inside.all()
        np.testing.assert_array_equal(labels[clear], expected[clear])


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.0, 1.5])
def test_geometry_of_the_image_is_that_of_the_label(scale):
    """The colour of a resampled ramp is the source coordinate of the output pixel's centre, up to rounding."""
    image, label = scene(80, 80)
    aim = (40, 37)
    label[aim] = 200
    for seed in range(20):
        cut, labels = crop(image, label, Augmentation((30, 30), (scale, scale)), seed, aim)
        ((row, column),) = np.argwhere(labels == 200)[:1]
        assert cut[row, column, 0] == pytest.approx(3 * aim[0], abs=1)
        assert cut[row, column, 1] == pytest.approx(3 * aim[1], abs=1)


def test_scale_one_is_the_source_to_the_bit():
    image, label = scene(50, 60)
    for seed in range(10):
        cut, labels = crop(image, label, Augmentation((20, 20), (1, 1), flip=False), seed, (25, 30))
        row, column = (cut[0, 0, :2] // 3).tolist()
        np.testing.assert_array_equal(cut, image[row : row + 20, column : column + 20])
        np.testing.assert_array_equal(labels, label[row : row + 20, column : column + 20])


def test_padding_is_void_and_mean_coloured():
    image, label = scene(20, 30)
    places = set()
    for seed in range(60):
        cut, labels = crop(image, label, Augmentation((64, 64), (1, 1)), seed)
        void = labels == 255
        assert (~void).sum() == pytest.approx(20 * 30, abs=50)
        assert (cut[void] == PADDING).all()
        places.add(tuple(np.argwhere(~void)[0]))
    assert len(places) > 30  # the image lies anywhere in the crop


def test_a_crop_stays_inside_where_the_image_is_large_enough():
    image, label = scene(70, 70)
    for seed in range(200):
        _, labels = crop(image, label, Augmentation((30, 30), (0.5, 1.5)), seed)
        assert (labels != 255).all()
        aim = tuple(np.random.default_rng(seed).integers(0, 70, 2).tolist())
        _, labels = crop(image, label, Augmentation((30, 30), (0.5, 1.5)), seed, aim)
        assert (labels != 255).all()


def test_offsets_scales_and_flips_are_random_and_uniform():
    image, label = scene(200, 200)
    label[:] = 0
    label[100, 100] = 3
    image[..., 1] = np.arange(200)
    where, flipped = [], 0
    for seed in range(2000):
        _, labels = crop(image, label, Augmentation((40, 40), (1, 1), flip=False), seed, (100, 100))
        where.append(np.argwhere(labels == 3)[0])
        cut, _ = crop(image, label, Augmentation((40, 40), (1, 1)), seed, (100, 100))
        flipped += int(cut[0, 0, 1]) > int(cut[0, -1, 1])
    places = np.array(where)
    for axis in (0, 1):
        counts = np.bincount(places[:, axis], minlength=40)
        assert len(counts) == 40
        assert counts.min() > 20  # 50 ± 7 each
    assert abs(np.corrcoef(places.T)[0, 1]) < 0.1
    assert flipped / 2000 == pytest.approx(0.5, abs=0.035)
    widths = [
        int((crop(image, label, Augmentation((400, 400), (0.5, 1.5)), seed)[1] != 255).any(0).sum()) / 200
        for seed in range(200)
    ]
    assert min(widths) == pytest.approx(0.5, abs=0.03)
    assert max(widths) == pytest.approx(1.5, abs=0.03)
    assert np.mean(widths) == pytest.approx(1, abs=0.07)


def test_the_seed_decides_everything():
    image, label = scene(90, 90)
    augmentation = Augmentation((32, 32))
    first = [crop(image, label, augmentation, seed, (40, 40)) for seed in range(5)]
    again = [crop(image, label, augmentation, seed, (40, 40)) for seed in range(5)]
    for (a, b), (c, d) in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)
    assert len({labels.tobytes() for _, labels in first}) > 1


def test_down_scaling_averages_instead_of_skipping():
    """Antialiased: a chequerboard of black and white becomes grey at half the size."""
    board = ((np.indices((80, 80)).sum(0) % 2) * 255).astype(np.uint8)
    image = np.repeat(board[..., None], 3, axis=2)
    cut, _ = crop(image, board // 255, Augmentation((30, 30), (0.5, 0.5)), 3)
    assert np.abs(cut.astype(int) - 127).max() < 40


def test_crops_without_new_settings_are_those_of_version_0_1():
    """Published runs are repeated from their seeds. The labels of a hundred crops, as version 0.1 cut them."""
    image, label = scene(70, 80)
    digest = hashlib.sha256()
    for seed in range(50):
        for aim in (None, (30, 41)):
            digest.update(np.ascontiguousarray(crop(image, label, Augmentation((40, 50)), seed, aim)[1]))
    assert digest.hexdigest().startswith("2840ecd8985ebd0c")


EVERYTHING = {"photometric": 1.0, "grey": 0.3, "rotate": 180.0, "turns": True}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_aimed_pixel_survives_rotations_and_turns(data):
    height, width = data.draw(HEIGHTS), data.draw(HEIGHTS)
    size = (data.draw(st.integers(1, 50)), data.draw(st.integers(1, 50)))
    aim = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    low = data.draw(st.floats(0.25, 2))
    image, label = scene(height, width)
    label[aim] = 200
    augmentation = Augmentation(size, (low, data.draw(st.floats(low, 2))), **EVERYTHING)
    cut, labels = crop(image, label, augmentation, data.draw(st.integers(0, 2**63 - 1)), aim)
    assert (cut.shape, labels.shape) == ((*size, 3), size)
    assert (labels == 200).any()
    assert set(np.unique(labels)) <= {0, 1, 2, 3, 200, 255}


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("aim", [None, (40, 37)])
def test_image_and_label_stay_together_when_rotated(scale, aim):
    """Where the image's own coordinates say (row, column), the label must be that pixel's; all else is padding."""
    image, label = scene(80, 80)
    angles, compared = [], 0
    for seed in range(40):
        cut, labels = crop(image, label, Augmentation((48, 40), (scale, scale), rotate=180.0, turns=True), seed, aim)
        inside = labels != 255
        assert (cut[~inside] == PADDING).all()
        rows, columns = cut[..., 0] / 3, cut[..., 1] / 3
        expected = label[np.round(rows).astype(int).clip(0, 79), np.round(columns).astype(int).clip(0, 79)]
        away = ((rows > 3) & (rows < 76) & (columns > 3) & (columns < 76)) & inside
        # The image is blended between pixels; where the nearest pixel is a toss-up, either is right.
        clear = (np.abs(rows % 1 - 0.5) > 0.35) & (np.abs(columns % 1 - 0.5) > 0.35) & away
        compared += clear.sum()
        np.testing.assert_array_equal(labels[clear], expected[clear])
        down, right = np.gradient(rows, axis=0)[away], np.gradient(rows, axis=1)[away]
        np.testing.assert_allclose(np.hypot(np.median(down), np.median(right)), 1 / scale, atol=0.2)
        angles.append(np.arctan2(np.median(right), np.median(down)))
    assert compared > 1000
    assert np.ptp(angles) > 5  # all around


def test_rotations_stay_within_their_range():
    """A ramp of rows leans by the angle: uniform from -20 to 20 degrees, without turns or flips."""
    image, label = scene(80, 80)
    leans = []
    for seed in range(200):
        cut, _ = crop(image, label, Augmentation((30, 30), (1, 1), flip=False, rotate=20.0), seed, (40, 40))
        rows = cut[..., 0] / 3
        leans.append(np.degrees(np.arctan2(np.gradient(rows, axis=1).mean(), np.gradient(rows, axis=0).mean())))
    assert -21 < min(leans) < -18
    assert 18 < max(leans) < 21
    assert np.mean(leans) == pytest.approx(0, abs=3)


@pytest.mark.parametrize(("flip", "orientations"), [(False, 4), (True, 8)])
def test_turns_are_turns_of_the_same_crop(flip, orientations):
    """By 90 degrees each; with flips, all eight orientations of a square crop, equally often."""
    image, label = scene(33, 33)
    counts = Counter()
    for seed in range(400):
        cut, labels = crop(image, label, Augmentation((33, 33), (1, 1), flip, turns=True), seed)
        corners = tuple(map(tuple, cut[[0, 0, -1], [0, -1, 0], :2]))
        counts[corners] += 1
        at = cut // 3
        np.testing.assert_array_equal(labels, label[at[..., 0], at[..., 1]])
    assert len(counts) == orientations
    assert min(counts.values()) > 400 / orientations / 2


def test_a_rectangular_crop_keeps_its_shape_when_turned():
    image, label = scene(90, 90)
    shapes = {crop(image, label, Augmentation((20, 50), turns=True), seed)[1].shape for seed in range(20)}
    assert shapes == {(20, 50)}


def test_colours_change_no_label_and_no_padding():
    image, label = scene(30, 40)
    changed = 0
    for seed in range(60):
        plain, there = (
            crop(image, label, Augmentation((50, 50), **more), seed) for more in ({}, {"photometric": 1.0, "grey": 0.5})
        )
        np.testing.assert_array_equal(plain[1], there[1])
        assert (there[0][there[1] == 255] == PADDING).all()
        changed += bool((plain[0] != there[0]).any())
    assert changed > 50
